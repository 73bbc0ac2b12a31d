"""Quantities are Kubernetes' own, to the last digit."""

import csv
from decimal import Decimal, localcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.quantity import (
    BINARY_MAX,
    NANO,
    NumberFormat,
    Quantity,
    parse_bytes,
    parse_cores,
    parse_typed_cores,
)

GOLDEN = Path(__file__).parent / "golden" / "quantities.csv"
"""What Kubernetes' own parser (apimachinery 0.35.8) said of each text."""


def _golden() -> list[dict[str, str]]:
    with GOLDEN.open() as file:
        return list(csv.DictReader(file))


def test_every_golden_text_reads_and_prints_as_kubernetes_does() -> None:
    """1,500 texts: the amount, the family and the canonical form, or the refusal."""
    rows = _golden()
    assert len(rows) == 1500
    for row in rows:
        if row["format"] == "refused":
            with pytest.raises(ValueError, match="expected"):
                Quantity.parse(row["text"])
            continue
        quantity = Quantity.parse(row["text"])
        with localcontext() as context:
            context.prec = 80
            assert Decimal(quantity.nanos) / NANO == Decimal(row["value"]), row
        assert quantity.format == row["format"], row
        assert str(quantity) == row["canonical"], row


@pytest.mark.parametrize(
    ("text", "canonical", "number"),
    [
        ("100m", "100m", 0.1),
        ("1.5", "1500m", 1.5),
        ("107Mi", "107Mi", 107 * 2**20),
        ("1e3", "1e3", 1000.0),
        ("262144k", "262144k", 262144000.0),
        ("1536Mi", "1536Mi", 1.5 * 2**30),
        ("1000000000n", "1", 1.0),
    ],
)
def test_the_forms_of_the_rulings_print_canonically(text: str, canonical: str, number: float) -> None:
    """The forms that the rulings name."""
    assert str(Quantity.parse(text)) == canonical
    assert float(Quantity.parse(text)) == number


@given(st.integers(-BINARY_MAX, BINARY_MAX), st.sampled_from(NumberFormat))
def test_printing_loses_nothing(nanos: int, form: NumberFormat) -> None:
    """What is printed reads back as the same amount."""
    quantity = Quantity(nanos, form)
    assert Quantity.parse(str(quantity)).nanos == nanos


@given(st.integers(-BINARY_MAX, BINARY_MAX), st.sampled_from(NumberFormat))
def test_printing_is_idempotent(nanos: int, form: NumberFormat) -> None:
    """A canonical text is its own canonical text."""
    text = str(Quantity(nanos, form))
    assert str(Quantity.parse(text)) == text


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused_with_one_error(text: str) -> None:
    """No text gets anything but a quantity or a ValueError."""
    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return
    assert Quantity.parse(str(quantity)).nanos == quantity.nanos


@pytest.mark.parametrize(
    "value", ["", "1x", "m", "1e1000000000", "9" * 200, -1, "-1", True, None, [], float("nan")]
)
def test_a_bad_amount_is_refused(value: object) -> None:
    """Negative, boolean, missing and monstrous amounts are no resources."""
    for parse in (parse_cores, parse_bytes):
        with pytest.raises(ValueError, match="expected"):
            parse(value)  # type: ignore[arg-type]


def test_a_number_is_cores_or_bytes() -> None:
    """Numbers need no suffix."""
    assert parse_cores(1.5) == 1.5
    assert parse_bytes(1024) == 1024.0


@pytest.mark.parametrize("text", ["1Gi", "512Mi", "1Ki", "512M", "2G", "1.5T", "1.Ei", "1E"])
def test_memory_is_not_taken_for_cores_that_somebody_typed(text: str) -> None:
    """The API server takes it, and so do we where it comes from there."""
    assert parse_cores(text) >= 1024
    with pytest.raises(ValueError, match=r"expected cores such as 1000m or 1\.5, got .* amount of memory"):
        parse_typed_cores(text)


@pytest.mark.parametrize("text", ["250m", "1.5", "1E3", "1e3", "1k", "100u", "0", "7"])
def test_cores_that_somebody_typed_are_a_quantity(text: str) -> None:
    """As everywhere."""
    assert parse_typed_cores(text) == parse_cores(text)
    assert parse_typed_cores(float(parse_cores(text))) == parse_cores(text)
