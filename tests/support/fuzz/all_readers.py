"""All readers, in the order of the table."""

from tests.support.fuzz import files, kubernetes, prometheus, redis, requests
from tests.support.fuzz.machine import Reader


def all_readers() -> list[Reader]:
    """Return them; every name is given once."""
    found = [one for part in (kubernetes, prometheus, redis, files, requests) for one in part.readers()]
    assert len({one.name for one in found}) == len(found), "a name tells which reader it is"
    return found
