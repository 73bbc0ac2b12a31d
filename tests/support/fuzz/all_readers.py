"""All readers, in the order of the table."""

from tests.support.fuzz import files, kubernetes, prometheus, redis, requests, usage_files
from tests.support.fuzz.machine import Reader


def all_readers() -> list[Reader]:
    """Return them; every name is given once."""
    parts = (kubernetes, prometheus, redis, files, usage_files, requests)
    found = [one for part in parts for one in part.readers()]
    assert len({one.name for one in found}) == len(found), "a name tells which reader it is"
    return found
