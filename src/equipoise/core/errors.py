"""The errors of commands, printed on one line, and the exceptions that decoding foreign data may raise."""

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""Every exception that decoding foreign data may raise, for `except` around such decoding.

`ValueError` covers broken UTF-8, pydantic's `ValidationError`, and dates that the calendar does not have;
`ArithmeticError` covers numbers too large for their type; `RecursionError` covers deep nesting.
"""


SENTENCE_LENGTH_MAX = 4000
"""A sentence may quote text from outside, which may be of any length."""


def _printable(sentence: str) -> str:
    """Return a sentence on one line that any encoding can write, cut at `SENTENCE_LENGTH_MAX`."""
    line = " ".join(sentence.splitlines()) if len(sentence.splitlines()) > 1 else sentence
    if not line.isascii():
        line = line.encode(errors="backslashreplace").decode()
    return line if len(line) <= SENTENCE_LENGTH_MAX else f"{line[:SENTENCE_LENGTH_MAX]}..."


class EquipoiseError(Exception):
    """An error printed on one line: what failed, where, and what was expected."""

    exit_status = 1

    def __str__(self) -> str:
        return _printable(super().__str__())


class BadInput(EquipoiseError):  # noqa: N818 - reads as a fact
    """The user's input is invalid: a file, a field, a flag. Nothing was changed."""

    exit_status = 2


class WorldFailed(EquipoiseError):  # noqa: N818 - reads as a fact
    """A system outside did not answer, refused the request, or gave an invalid answer."""


class SetUpWrong(WorldFailed):
    """A system outside answers, but its configuration makes actions harmful until a user corrects it."""
