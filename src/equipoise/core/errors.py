"""The two ways a command can fail, the one line each prints, and what decoding foreign data may raise."""

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""Every exception that decoding foreign data may raise, for `except` around such decoding.

`ValueError` covers broken UTF-8, pydantic's `ValidationError`, and dates that the calendar does not have;
`ArithmeticError` covers numbers too large for their type; `RecursionError` covers deep nesting.
"""


SENTENCE_LENGTH_MAX = 4000
"""What somebody else wrote may be quoted, and may be as long as they like."""


def _printable(sentence: str) -> str:
    """Return a sentence on one line that any encoder takes, cut where it is longer than anybody reads."""
    line = " ".join(sentence.splitlines()) if len(sentence.splitlines()) > 1 else sentence
    if not line.isascii():
        line = line.encode(errors="backslashreplace").decode()
    return line if len(line) <= SENTENCE_LENGTH_MAX else f"{line[:SENTENCE_LENGTH_MAX]}..."


class EquipoiseError(Exception):
    """Something that a person is told in one line: what failed, where, what was expected."""

    exit_status = 1

    def __str__(self) -> str:
        return _printable(super().__str__())


class BadInput(EquipoiseError):  # noqa: N818 - reads as a fact
    """The user's words are wrong: a file, a field, a flag. Nothing was changed."""

    exit_status = 2


class WorldFailed(EquipoiseError):  # noqa: N818 - reads as a fact
    """A neighbour did not answer, refused, or answered what it must not."""


class SetUpWrong(WorldFailed):
    """A neighbour answers, and is set up so that acting on it would do harm, until somebody mends it."""
