"""YAML as Kubernetes reads it, and YAML that everybody reads back as it was."""

import math
import re
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from equipoise.core.documents import DEPTH_MAX, Loader, StrictLoader, dump, load, read_document, read_json

KUBERNETES: list[tuple[str, Any]] = [
    *(("12:30:00", "12:30:00"), ("1:30", "1:30"), ("-1:30", "-1:30"), ("1:30.5", "1:30.5")),
    *(("yes", True), ("On", True), ("TRUE", True), ("off", False), ("No", False), ("tRUE", "tRUE")),
    *(("010", 8), ("-010", -8), ("0777_7", 4095), ("0o10", 8), ("0O10", 8), ("08", 8.0), ("07.5", 7.5)),
    *(("0b11", 3), ("0x1F", 31), ("-0x1F", -31), ("0b2", "0b2"), ("0x", "0x"), ("00", 0), ("+12", 12)),
    *(("1_000", 1000), ("1__0", 10), ("1_", 1), ("_1", "_1"), ("1_0.5", 10.5), ("1,000", "1,000")),
    *(
        ("1e3", 1000.0),
        ("1E+3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("+.5", 0.5),
        ("-.5", -0.5),
        ("._5", "._5"),
    ),
    *(("1e", "1e"), ("0.1e", "0.1e"), ("1.2.3", "1.2.3"), ("+", "+"), ("++1", "++1"), ("1e400", "1e400")),
    *(("18446744073709551615", 2**64 - 1), ("18446744073709551616", 2.0**64), ("0xFFFFFFFFFFFFFFFFF",) * 2),
    *(("-9223372036854775808", -(2**63)), ("-9223372036854775809", -(2.0**63)), ("9" * 5000,) * 2),
    *(("2026-01-01", "2026-01-01"), ("2026-01-01T00:00:00Z",) * 2, ("2026-1-1 1:2:3",) * 2),
    *(("~", None), ("Null", None), ("", None), ("=", "="), ("'12'", "12"), ('"yes"', "yes")),
    *(('!!int "7"', 7), ("!!float 3", 3), ("!!str 12", "12"), ('!!bool "yes"', True)),
    ("!!timestamp 2026-01-01", "2026-01-01"),
]
"""What sigs.k8s.io/yaml v1.6.0 made of each scalar when it was asked."""
KEYS = {
    "yes": "true",
    "1": "1",
    "0x10": "16",
    "1.5": "1.5",
    "1.0": "1",
    "2026-01-01": "2026-01-01",
    "12:30": "12:30",
}
REFUSED = {
    "a: !!int '12:30'": "expected a number, got '12:30'",
    "a: !!bool maybe": "expected true, false or null, got 'maybe'",
    "a: !!null x": "expected true, false or null, got 'x'",
    "a: !!map [x]": "expected a mapping, but found a sequence",
    "a: !!timestamp [x]": "expected a scalar node",
    "a: !!python/object:os.system x": "could not determine a constructor",
    "a: !!set {x}": "could not determine a constructor",
    "a: !!binary aGk=": "could not determine a constructor",
    "~: a": "expected text as key",
    "? [a]\n: b": "expected text as key",
    "{1: a, '1': b}": "the key '1' occurs twice",
    "{yes: a, true: b}": "the key 'true' occurs twice",
}


def _same(found: Any, wanted: Any) -> bool:
    return found == wanted and type(found) is type(wanted)


@pytest.mark.parametrize(("text", "wanted"), KUBERNETES, ids=[text[:24] or "empty" for text, _ in KUBERNETES])
def test_a_plain_scalar_is_what_kubernetes_reads_in_it(text: str, wanted: Any) -> None:
    """In a mapping, in a list, and in both loaders."""
    for loader in (Loader, StrictLoader):
        assert _same(load(f"a: {text}", loader)["a"], wanted)
        assert _same(load(f"- {text}", loader)[0], wanted)


def test_what_is_no_number_of_json_is_a_float_of_yaml() -> None:
    """Who reads a field says that it is none for it."""
    assert load("[.inf, +.Inf, -.INF]") == [math.inf, math.inf, -math.inf]
    assert math.isnan(load("a: .NaN")["a"])


@pytest.mark.parametrize("letter", ["y", "Y", "n", "N"])
def test_a_pod_may_be_named_by_a_single_letter(letter: str) -> None:
    """Kubernetes would read true or false here; whoever writes `name: y` means a name."""
    assert load(f"name: {letter}") == {"name": letter}


@pytest.mark.parametrize(("key", "wanted"), KEYS.items())
def test_every_key_is_text(key: str, wanted: str) -> None:
    """As in the JSON that the API server gets."""
    assert load(f"{key}: a") == {wanted: "a"}


@pytest.mark.parametrize(("text", "problem"), REFUSED.items())
def test_what_kubernetes_would_not_take_is_refused_in_words(text: str, problem: str) -> None:
    """It is an error of YAML with its place, never a KeyError or an AttributeError."""
    with pytest.raises(yaml.YAMLError, match=re.escape(problem)) as refused:
        read_document(text)
    assert refused.value.problem_mark is not None  # type: ignore[attr-defined]


def test_a_key_may_come_twice_only_where_one_of_them_was_merged() -> None:
    """Also when the mapping that is merged was itself merged from another, and is read later."""
    text = "z: &z {k: 0}\nx: {y: &a {<<: *z, k: 1}}\nb: {<<: *a, k: 2}\n"
    assert load(text) == {"z": {"k": 0}, "x": {"y": {"k": 1}}, "b": {"k": 2}}
    assert load("{k: 1, k: 2}", Loader) == {"k": 2}, "a kubeconfig: kubectl takes the last"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_is_no_deeper_than_yaml(opening: str) -> None:
    """One level more than allowed is refused, and so are very many."""
    closing = "]" if opening == "[" else "}"
    whole = opening * (DEPTH_MAX - 1) + f"{opening}1{closing}" * (opening != "[") + "[1]" * (opening == "[")
    assert read_json(whole + closing * (DEPTH_MAX - 1))
    for levels in (DEPTH_MAX + 1, 100_000):
        with pytest.raises(ValueError, match="expected at most 100 levels"):
            read_document(opening * levels + "1" + closing * levels)


def test_a_number_of_json_without_end_is_refused_in_our_words() -> None:
    """Python would speak of its own settings; what 64 bits do not hold is a float, as in YAML."""
    for text in ("9" * 5000, "-" + "9" * 5000, "1e400"):
        with pytest.raises(ValueError, match="expected a number that fits a float"):
            read_document(f"[{text}]")
    assert read_json("[18446744073709551616, 18446744073709551615]") == [2.0**64, 2**64 - 1]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text()
    | st.from_regex(r"[-+0-9._:eExoby]+")
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@given(DOCUMENTS, st.booleans())
@example(
    ["1e3", "0o10", "y", "N", "1_000", "12:30", "010", "08", "1e", ".5e3", "2026-01-01", "=", "<<", ""], True
)
@example({"yes": {"1": ["null", "~"]}}, False)
def test_what_is_written_reads_back_here_and_with_yaml_1_1(document: Any, is_flow: bool) -> None:
    """Text stays text, whatever it looks like."""
    written = dump(document, is_flow=is_flow)
    assert _same(load(written), document)
    assert yaml.safe_load(written) == document


@given(st.text(alphabet="-+.:_0123456789aeExXoOb", max_size=12) | st.text(max_size=30))
@example("!!bool x")
@example("&a [*a]")
@example("!!merge x: 1")
def test_no_text_raises_anything_but_an_error_of_yaml_or_of_a_value(text: str) -> None:
    """These two are what every reader of a file answers for."""
    for document in (text, f"a: {text}", f"? {text}\n: 1", f"a: !!int {text}", f"a: !!bool {text}"):
        try:
            read_document(document)
        except (yaml.YAMLError, ValueError):
            continue
