"""An error is as large as its cause: one about a workload ends only that workload's share of the cycle.

Every loop runs the work about one workload, policy or pod through an `Isolation`. An exception there becomes
a `FailedTurn`, which the cycle reports beside its decisions; all others are processed in the same cycle. Work
that is done for a batch is bisected: if the batch fails, halves are tried, down to the items that fail alone.

Lost leadership, a stop, and a `BaseException` such as an interrupt are never isolated.
"""

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import EquipoiseError, KeyedBackoff, WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.ports import FailedTurn, Leadership

I = TypeVar("I")  # noqa: E741 - an item
T = TypeVar("T")

ERROR_LENGTH_MAX = 300
TRACEBACK_LENGTH_MAX = 20_000
FRAMES_MAX = 50
DEPENDENCY_FAILURES_MAX = 3
"""After this many consecutive failures of a dependency, the error ends the cycle."""
WORKERS_LOST_MAX = 16
"""Workers that one cycle may lose; later cycles find the items that end further ones."""
RETRY_FIRST_SECONDS = 60.0
RETRY_MAX_SECONDS = 3600.0


class BatchLost(WorldFailed):
    """A batch has no result: its worker died, hung or was stopped. The next batch gets a new worker."""


class WorkerBusy(WorldFailed):
    """A batch was not begun, since the worker is busy: no item of it is to blame."""


def ignore(*_: object) -> None:
    """Do nothing: the default of callbacks."""


@dataclass(slots=True)
class Isolation:
    """The failed turns of one cycle, and the subjects whose work ended a worker in earlier ones."""

    failed: list[FailedTurn] = field(default_factory=list)
    _at: float = 0.0
    _leadership: Leadership | None = None
    _epoch: int | None = None
    _failures_in_a_row: int = 0
    _workers_left: int = WORKERS_LOST_MAX
    _suspects: KeyedBackoff[str, FailedTurn] = field(
        default_factory=lambda: KeyedBackoff(RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS)
    )
    """Subjects whose work ended a worker when it was done alone."""

    def begin(self, at: float, leadership: Leadership | None = None) -> None:
        """Begin a cycle. Errors are isolated as long as this replica is the leader in the present epoch."""
        self.failed, self._at = [], at
        self._leadership, self._epoch = leadership, None if leadership is None else leadership.epoch()
        self._failures_in_a_row, self._workers_left = 0, WORKERS_LOST_MAX

    def _still_leads(self) -> bool:
        return self._leadership is None or self._leadership.epoch() == self._epoch

    def attempt(
        self, subject: str, work: Callable[[], T], reraised: tuple[type[Exception], ...] = ()
    ) -> T | FailedTurn:
        """Return the result of the work, or how it failed; exceptions of the types `reraised` are raised."""
        try:
            return work()
        except reraised:
            raise
        except Exception as error:  # noqa: BLE001 - any error is about this subject
            return self.take(subject, error)

    def turn(
        self, subject: str, work: Callable[[], T], reraised: tuple[type[Exception], ...] = ()
    ) -> T | FailedTurn:
        """Attempt a subject's share of the cycle; several failures of a dependency in a row end the cycle."""

        def counting_failures() -> T:
            try:
                return work()
            except EquipoiseError as error:
                self._failures_in_a_row += not isinstance(error, reraised)
                raise

        if self._failures_in_a_row >= DEPENDENCY_FAILURES_MAX - 1:
            reraised = (*reraised, EquipoiseError)
        found = self.attempt(subject, counting_failures, reraised)
        if not isinstance(found, FailedTurn):
            self._failures_in_a_row = 0
        return found

    def take(self, subject: str, error: Exception) -> FailedTurn:
        """Record an exception about one subject; raise it if leadership was lost."""
        if not self._still_leads():
            raise error
        return self._add(failed_turn(subject, error))

    def each(
        self,
        items: Sequence[I],
        work: Callable[[Sequence[I]], Sequence[T]],
        subject: Callable[[I], str],
        reraised: tuple[type[Exception], ...] = (WorkerBusy,),
    ) -> list[T | FailedTurn]:
        """Return a result for each item; where the work fails for a batch, it is repeated for its halves.

        The work must be free of side effects; exceptions of the types `reraised` concern no item.
        """
        found: dict[int, T | FailedTurn] = {}
        parts = self._parts([subject(item) for item in items], found)
        while parts:
            part = parts.pop(0)
            try:
                results = work([items[index] for index in part])
                found |= dict(zip(part, results, strict=True))
            except reraised:
                raise
            except Exception as error:
                if not self._still_leads():
                    raise
                assert part, "work on nothing cannot fail"
                is_lost = isinstance(error, BatchLost)
                self._workers_left -= is_lost
                if len(part) > 1 and not (is_lost and self._workers_left <= 0):
                    half = len(part) // 2
                    parts[:0] = [part[:half], part[half:]]
                    continue
                for index in part:
                    failed = self._add(failed_turn(subject(items[index]), error))
                    if is_lost and len(part) == 1:
                        self._suspects.fail(failed.subject, self._at, failed)
                    found[index] = failed
            else:
                for index in part:
                    self._suspects.forget(subject(items[index]))
        assert found.keys() == set(range(len(items))), "every item has a result or an error"
        return [found[index] for index in range(len(items))]

    def _parts(self, subjects: Sequence[str], found: dict[int, T | FailedTurn]) -> list[list[int]]:
        """Return the indexes of the items of each batch: all but the suspects, then each suspect alone.

        A suspect alone cannot end the work of another item; in backoff it fails at once.
        """
        others: list[int] = []
        alone: list[list[int]] = []
        for index, subject in enumerate(subjects):
            suspect = self._suspects.failure(subject)
            if suspect is None:
                others.append(index)
            elif 0 < suspect.until - self._at <= RETRY_MAX_SECONDS:
                found[index] = self._add(suspect.last)
            else:
                alone.append([index])
        return [part for part in (others, *alone) if part]

    def _add(self, failed: FailedTurn) -> FailedTurn:
        self.failed.append(failed)
        return failed


def failed_turn(subject: str, error: Exception) -> FailedTurn:
    """Return the report of an exception: one line, and the traceback unless it is an expected error."""
    if isinstance(error, EquipoiseError):
        return FailedTurn(subject, _one_line(error))
    frames = traceback.extract_tb(error.__traceback__)
    location = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    # Only the last calls matter: a recursion has a thousand of them.
    text = "".join(traceback.format_exception(error, limit=-FRAMES_MAX))[-TRACEBACK_LENGTH_MAX:]
    message = f"{type(error).__name__}: {_one_line(error)}".removesuffix(": ")
    return FailedTurn(subject, message, _encodable(text), location)


def _one_line(error: Exception) -> str:
    """Return an exception's message on one line of bounded length that can be encoded."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - an error of __str__ leaves no message
        message = ""
    message = " ".join(_encodable(message[: 2 * ERROR_LENGTH_MAX]).split())
    return message if len(message) <= ERROR_LENGTH_MAX else f"{message[:ERROR_LENGTH_MAX]}..."


def _encodable(text: str) -> str:
    """Return a text with lone surrogates escaped, so that it can be encoded."""
    return text.encode(errors="backslashreplace").decode()


def failed_decision(failed: FailedTurn, outcomes: Sequence[Outcome] = ()) -> Decision:
    """Return the decision that reports a failed turn; its actions are those sent before the error."""
    return Decision(failed.subject, failed_reason(failed), tuple(outcome.action for outcome in outcomes))


def failed_reason(failed: FailedTurn) -> Reason:
    error = failed.error.rstrip(".") or "the error has no message"
    where = " The log has the traceback; please report it." if failed.is_bug else ""
    sentence = f"The processing failed: {error}. Nothing else is affected.{where}"
    return Reason(Code.INTERNAL_ERROR, sentence)
