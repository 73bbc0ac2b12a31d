"""What is kept of a decision, so that the journal is quiet at rest.

Whole: what was acted on, and what differs from the subject's last decision in its reason, in what is to
be done or in what is held. The rest only lengthens the streak of that last one: how often, until when,
and the last numbers and hash.
"""

import hashlib
import zlib
from typing import TypeVar

import msgspec

from equipoise.adapters.journal.schema import Damaged
from equipoise.model.decision import Decision, Record, Streak
from equipoise.model.documents import DEPTH_MAX, refuse_deep
from equipoise.model.duration import check_moment
from equipoise.model.errors import DECODE_ERRORS

PACKING_LEVEL = 1
"""Nine tenths of what the highest level gains, for half its time."""

PACKED_ABOVE_BYTES = 512
"""Smaller texts gain less from zlib than it costs."""

_ZLIB = b"x"
"""The first byte of every zlib stream of ours; JSON begins with a brace or a bracket."""

T = TypeVar("T")

Subject = tuple[str, str]
"""Balancer and subject: whose streak it is."""


def subject_of(record: Record) -> Subject:
    """Whose streak this record belongs to."""
    return record.balancer, record.decision.subject


def gist(decision: Decision) -> bytes:
    """Give what makes two decisions alike: codes and actions. Not the numbers, nor sentences with numbers."""
    # Equal pods change places from look to look; that is no news.
    held = sorted((part.reason.value, msgspec.json.encode(part.action)) for part in decision.held)
    alike = (decision.reason.code, decision.actions, held)
    return hashlib.blake2b(msgspec.json.encode(alike), digest_size=8).digest()


def is_news(last: bytes | None, record: Record) -> bool:
    """Whether a record is kept whole, given the gist of its subject's last one."""
    return bool(record.outcomes) or last != gist(record.decision)


def prolonged(before: Streak | None, record: Record) -> Streak:
    """Add one more of the same to a streak."""
    times = 1 if before is None else before.times + 1
    return Streak(times, record.at, record.decision.reason, record.inputs_hash)


def merged(before: Streak | None, after: Streak | None) -> Streak | None:
    """Join what is on disk with what came since."""
    if before is None or after is None:
        return after or before
    return msgspec.structs.replace(after, times=before.times + after.times)


def pack(text: bytes) -> bytes:
    """Make a large text small."""
    return text if len(text) <= PACKED_ABOVE_BYTES else zlib.compress(text, PACKING_LEVEL)


def unpack(data: bytes, kind: type[T]) -> T:
    """Give back what `pack` took, read as this type."""
    try:
        return parse(zlib.decompress(data) if data[:1] == _ZLIB else data, kind)
    except (zlib.error, *DECODE_ERRORS) as error:
        raise Damaged(f"a row is damaged: {error}") from error


def parse(text: bytes, kind: type[T]) -> T:
    """Return what a line or a row has, read as this type; raise one of DECODE_ERRORS where it makes no sense.

    What can be read can be printed and written again: nothing is nested too deeply, and no moment is off the
    calendar.
    """
    value = msgspec.json.decode(text, type=kind)
    if text.count(b"{") + text.count(b"[") > DEPTH_MAX:
        refuse_deep(msgspec.json.decode(text))
    if isinstance(value, Record):
        check_moment(value.at)
        check_moment(value.until)
    elif isinstance(value, Streak):
        check_moment(value.until)
    return value
