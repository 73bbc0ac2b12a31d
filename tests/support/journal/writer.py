"""A writer in its own process: appends until it is killed or done, and says so after each.

python -m tests.support.journal.writer PATH FIRST COUNT [LARGEST_FILE_BYTES]
"""

import random
import resource
import signal
import sys
from pathlib import Path

from equipoise.adapters.journal import JsonLines, SqliteJournal
from equipoise.core.decision import Decision, EvictPod, Record, hash_inputs
from equipoise.core.reason import Code, Reason

BYTES_MAX = 2 << 20


class Clock:
    """A time that stands still."""

    def now(self) -> float:
        return 0.0


def numbered(count: int) -> Record:
    """Make a record that its number alone determines."""
    chance = random.Random(count)
    seen = {"text": chance.randbytes(chance.randrange(6000)).hex()}
    decision = Decision(f"shop/{count % 7}", Reason(Code.ROTATE, "Because.", {"n": count}), (EvictPod("a"),))
    made = Record(f"{count:09}", "rotation", float(count), {"topK": 2}, seen, {}, decision)
    return Record(
        made.id,
        made.balancer,
        made.at,
        made.policy,
        seen,
        {},
        decision,
        (),
        hash_inputs({"topK": 2}, seen, {}),
    )


def main(path: str, first: int, count: int, file_bytes_max: int = 0) -> None:
    """Append, and name each record once it is written, or say why not."""
    if file_bytes_max:
        # As on a full disk: a write that would make a file larger fails.
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, file_bytes_max))
    kept: JsonLines | SqliteJournal
    if Path(path).suffix == ".jsonl":
        kept = JsonLines(path, bytes_max=BYTES_MAX)
    else:
        kept = SqliteJournal(path, age_max_seconds=1e9, bytes_max=BYTES_MAX, clock=Clock())
    for number in range(first, first + count):
        kept.append(numbered(number), is_whole=True)
        print(number if not kept.failure else kept.failure, flush=True)
    kept.close()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
