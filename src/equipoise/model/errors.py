"""The two ways a command can fail, the one line each prints, and what decoding foreign data may raise."""

import msgspec

DECODE_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, ArithmeticError, RecursionError)
"""Every exception that decoding foreign data may raise, for `except` around such decoding.

`ValueError` covers broken UTF-8, pydantic's `ValidationError`, and dates that the calendar does not have;
`ArithmeticError` covers numbers too large for their type; `RecursionError` covers deep nesting.
"""


class EquipoiseError(Exception):
    """Something that a person is told in one line: what failed, where, what was expected."""

    exit_status = 1


class BadInput(EquipoiseError):  # noqa: N818 - reads as a fact
    """The user's words are wrong: a file, a field, a flag. Nothing was changed."""

    exit_status = 2


class WorldFailed(EquipoiseError):  # noqa: N818 - reads as a fact
    """A neighbour did not answer, refused, or answered what it must not."""


class SetUpWrong(WorldFailed):
    """A neighbour answers, and is set up so that acting on it would do harm, until somebody mends it."""
