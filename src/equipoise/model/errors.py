"""The two ways a command can fail, and the one line each prints."""


class EquipoiseError(Exception):
    """Something that a person is told in one line: what failed, where, what was expected."""

    exit_status = 1


class BadInput(EquipoiseError):  # noqa: N818 - reads as a fact
    """The user's words are wrong: a file, a field, a flag. Nothing was changed."""

    exit_status = 2


class WorldFailed(EquipoiseError):  # noqa: N818 - reads as a fact
    """A neighbour did not answer, refused, or answered what it must not."""
