"""Names for records: later ones sort after earlier ones, and no two are the same."""

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
"""Crockford's 32: no i, l, o or u, which a person misreads; in the order of their codes."""

TIME_DIGITS = 9
"""Milliseconds until the year 3084."""

CHANCE_BITS = 15
COUNT_BITS = 20


def record_id(at: float, chance: int, count: int) -> str:
    """Name a record by its time, by who wrote it (a random number) and by how many came before it."""
    return (
        _digits(max(0, int(at * 1000)), TIME_DIGITS)
        + _digits(chance, CHANCE_BITS // 5)
        + _digits(count, COUNT_BITS // 5)
    )


def _digits(number: int, width: int) -> str:
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(width)))


class RecordIds:
    """Names for all that one process writes; `chance` is its own random number."""

    def __init__(self, chance: int) -> None:
        self._chance = chance
        self._count = 0

    def next(self, at: float) -> str:
        """Name the next record."""
        self._count += 1
        return record_id(at, self._chance, self._count)
