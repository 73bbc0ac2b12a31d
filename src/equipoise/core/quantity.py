"""Kubernetes quantities, exact: `100m`, `1.5`, `107Mi`, `1e3`, `262144k`.

A quantity is an integer number of billionths and the family of suffixes it was written in. It is printed in
Kubernetes' canonical form: exact, without a fraction, with the largest possible suffix.

Also durations (`90`, `90s`, `5m`, `1h30m`, `250ms`), RFC 3339 times, and amounts as sentences have them.
"""

import math
import re
from collections.abc import Iterable
from datetime import datetime, tzinfo
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

NANO = 10**9
BINARY_MAX = (2**63 - 1) * NANO
"""Kubernetes caps larger binary amounts at this one; decimal ones are not capped."""
EXPONENT_MAX = 64
"""Larger exponents are refused: no amount needs them, and the number would fill the memory."""

TEXT_MAX = 128
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIX = {power: suffix for suffix, power in _BINARY.items()} | {0: ""}
_DECIMAL_SUFFIX = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]+)"
)
_OF_MEMORY = re.compile(r"[0-9.]([KMGTPE]i|[MGTPE])$")


class NumberFormat(StrEnum):
    """The family of suffixes that a quantity is written in."""

    BINARY = "BinarySI"
    DECIMAL = "DecimalSI"
    EXPONENT = "DecimalExponent"


class Quantity(NamedTuple):
    """An exact amount. Compare `nanos` to compare amounts."""

    nanos: int
    format: NumberFormat = NumberFormat.DECIMAL

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Return the quantity of a text in any form of Kubernetes; raise ValueError for other texts."""
        return _parse(text)

    def __str__(self) -> str:
        return _print(self)

    def __float__(self) -> float:
        return self.nanos / NANO


def parse_cores(value: str | float) -> float:
    """Return cores: a number is cores, a text is a quantity."""
    return _parse_number(value)


def parse_typed_cores(value: str | float) -> float:
    """Return cores of a user's input; raise ValueError for a suffix of memory, which must be a mistake."""
    expected = f"expected cores such as 1000m or 1.5, got {value!r}"
    if isinstance(value, str) and _OF_MEMORY.search(value):
        raise ValueError(f"{expected}, which is an amount of memory")
    try:
        return parse_cores(value)
    except ValueError as error:
        raise ValueError(expected) from error


def parse_bytes(value: str | float) -> float:
    """Return bytes: a number is bytes, a text is a quantity."""
    return _parse_number(value)


def _parse_number(value: str | float) -> float:
    if isinstance(value, str):
        number = _parse_text(value)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"expected a number or a quantity such as 250m or 1Gi, got {value!r}")
    else:
        number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError(f"expected a quantity of 0 or more, got {value!r}")
    return number


@lru_cache(maxsize=4096)
def _parse_text(text: str) -> float:
    return float(_parse(text))


def _parse(text: str) -> Quantity:
    if len(text) > TEXT_MAX:
        raise ValueError(f"expected a quantity of at most {TEXT_MAX} characters, got {len(text)}")
    form = _FORM.fullmatch(text)
    if form is None or not (form["whole"] or form["fraction"]):
        raise ValueError(f"expected a quantity such as 250m, 1.5 or 1Gi, got {text!r}")
    fraction = form["fraction"] or ""
    digits = int((form["whole"] + fraction) or "0")
    suffix = form["suffix"]
    if suffix in _BINARY:
        format_, numerator, exponent = NumberFormat.BINARY, digits * 1024 ** _BINARY[suffix], -len(fraction)
    elif suffix in _DECIMAL:
        format_, numerator, exponent = NumberFormat.DECIMAL, digits, _DECIMAL[suffix] - len(fraction)
    else:
        format_, numerator, exponent = NumberFormat.EXPONENT, digits, _exponent(suffix) - len(fraction)
    nanos = _scaled_up(numerator, exponent + 9)
    if format_ is NumberFormat.BINARY:
        nanos = min(nanos, BINARY_MAX)
    if format_ is NumberFormat.BINARY and 0 < nanos < NANO:
        format_ = NumberFormat.DECIMAL
    return Quantity(-nanos if form["sign"] == "-" else nanos, format_)


def _exponent(suffix: str) -> int:
    exponent = int(suffix[1:])
    if abs(exponent) > EXPONENT_MAX:
        raise ValueError(f"expected an exponent between -{EXPONENT_MAX} and {EXPONENT_MAX}, got {suffix!r}")
    return exponent


def _scaled_up(number: int, exponent: int) -> int:
    """Return number x 10^exponent, rounded up so that a positive amount never becomes 0."""
    if exponent >= 0:
        return number * int(10**exponent)
    return -(-number // int(10**-exponent))


def _print(quantity: Quantity) -> str:
    nanos = quantity.nanos
    magnitude, sign = abs(nanos), "-" if nanos < 0 else ""
    if magnitude == 0:
        return "0"
    if quantity.format is NumberFormat.BINARY and magnitude >= 1024 * NANO and magnitude % NANO == 0:
        amount, power = magnitude // NANO, 0
        while amount % 1024 == 0 and power + 1 in _BINARY_SUFFIX:
            amount, power = amount // 1024, power + 1
        return f"{sign}{amount}{_BINARY_SUFFIX[power]}"
    amount, exponent = magnitude, -9
    exponent_max = EXPONENT_MAX if quantity.format is NumberFormat.EXPONENT else max(_DECIMAL_SUFFIX)
    while amount % 1000 == 0 and exponent < exponent_max:
        amount, exponent = amount // 1000, exponent + 3
    if quantity.format is NumberFormat.EXPONENT:
        return f"{sign}{amount}e{exponent}" if exponent else f"{sign}{amount}"
    return f"{sign}{amount}{_DECIMAL_SUFFIX[exponent]}"


def written_out(number: str) -> str:
    """Return the same number without an exponent: `1e-05` is `0.00001`."""
    text = f"{Decimal(number):f}"
    return text if "." in text else f"{text}.0"


def plain_number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, never in scientific notation: `8,200`, `0.00001`."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    after = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(after, 60)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhdw])")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+")
MOMENT_MIN, MOMENT_MAX = -62_135_510_400.0, 253_402_214_399.0
"""Unix seconds within the years 1 to 9999 in every time zone."""


def parse_seconds(value: str | float) -> float:
    """Return the seconds of a duration; raise ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"expected seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
    try:
        if isinstance(value, str) and _WHOLE.fullmatch(value):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
        else:
            seconds = float(value)
    except (ValueError, OverflowError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"expected seconds or a span such as 90s, 5m or 1h30m, got {value!r}")
    return seconds


def parse_moment(text: object, zone: tzinfo | None = None) -> float:
    """Return an RFC 3339 time as Unix seconds; raise ValueError for one outside the supported years.

    All times from outside are parsed here: a time of the year 9999 with an offset may be of another year in
    UTC, where it cannot be printed. A time without a zone is refused, unless `zone` is its zone.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a time such as 2026-01-31T08:00:00Z, got {type(text).__name__}")
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        if zone is None:
            raise ValueError(f"expected a time with a zone, got {text!r}")
        moment = moment.replace(tzinfo=zone)
    return check_moment(moment.timestamp())


def check_moment(at: float) -> float:
    """Return these Unix seconds; raise ValueError outside the years 1 to 9999."""
    if not MOMENT_MIN <= at <= MOMENT_MAX:
        shown = f"{at:.0f}" if abs(at) < 1e15 else f"{at:g}"  # noqa: PLR2004 - a time, or not even nearly one
        raise ValueError(f"expected seconds since 1970, of the years 1 to 9999, got {shown}")
    return at


def print_seconds(seconds: float) -> str:
    """Return a duration in its largest units, as in PromQL: 300 is `5m`, 5400 is `1h30m`."""
    rest, parts = round(seconds * 1000), ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, round(_UNITS[unit] * 1000))
        if count:
            parts += f"{count}{unit}"
    return parts or "0s"


DIGITS = 3
"""How many significant digits a number has in a sentence."""


def print_number(value: float) -> str:
    """Return a number as a sentence has it: three digits, never scientific, such as 1.05, 1234 or 0.0002."""
    if abs(value) >= 10 ** (DIGITS - 1):
        return f"{value:.0f}"
    text = f"{value:.{DIGITS}g}"
    return f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text


def print_cores(cores: float) -> str:
    """Return an amount of CPU as a sentence has it: `1.05 cores`, `1 core`."""
    number = print_number(cores)
    return f"{number} core{'' if number == '1' else 's'}"


def print_exact(nanos: int) -> str:
    """Return an exact amount as a plain number, without a suffix: `0.305`, `15.999`, `1610612736`."""
    amount, rest = divmod(abs(nanos), NANO)
    return f"{'-' if nanos < 0 else ''}{amount}.{rest:09}".rstrip("0").rstrip(".")


def print_exact_cores(nanos: int) -> str:
    """Return an exact amount of CPU, which is not rounded to three digits: `0.305 cores`, `1234.5 cores`."""
    return f"{print_exact(nanos)} core{'' if nanos == NANO else 's'}"


def print_bytes(amount: float) -> str:
    """Return an amount of memory as a sentence has it, in its largest binary unit: `1.2 GiB`, `512 MiB`."""
    power = 0
    while abs(amount) >= 1024 and power < len(_BINARY):  # noqa: PLR2004 - the step between two units
        amount, power = amount / 1024, power + 1
    unit = f"{_BINARY_SUFFIX[power]}B" if power else ("byte" if amount == 1 else "bytes")
    return f"{print_number(amount)} {unit}"


def print_count(count: int, noun: str) -> str:
    """Return a count with its noun: `1 pod`, `2 pods`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def print_list(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: `a`, `a and b`, `a, b and c`."""
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last
