"""Logs decisions and events on standard error, one per line: JSON for machines, colours on a terminal.

A cycle runs every few seconds and mostly repeats the last one. So only changes are logged: a decision when
its reason changes, an error when it begins and when it ends.
"""

import json
import logging
import math
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

import msgspec
import structlog
from structlog.dev import ConsoleRenderer
from structlog.processors import EventRenamer, JSONRenderer, TimeStamper, add_log_level
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

from equipoise.adapters.urls import without_users
from equipoise.core.decision import Decision, Outcome
from equipoise.core.errors import EquipoiseError
from equipoise.ports import CycleReport, FailedTurn
from equipoise.runtime.settings import Logs

Log = FilteringBoundLogger
LISTED_MAX = 20
"""The maximum number of actions, held actions or outcomes in a line; the journal has them all."""
AGAIN_SECONDS = 3600.0
"""The minimum interval between two lines about the same cause of failed turns."""


def make_log(settings: Logs, stream: TextIO | None = None) -> Log:
    """Return the log, and route the log records of libraries to it."""
    stream = stream or sys.stderr
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    renderers: list[Processor] = [EventRenamer("message"), _in_order, JSONRenderer(_text)]
    if settings.format == "console" or (settings.format == "auto" and stream.isatty()):
        renderers = [ConsoleRenderer(colors=stream.isatty(), timestamp_key="at", sort_keys=False)]
    log: Log = structlog.wrap_logger(
        structlog.PrintLogger(cast("TextIO", _UnfailingStream(stream))),
        processors=[
            add_log_level,
            TimeStamper(fmt="iso", utc=True, key="at"),
            *renderers,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    root.handlers[:] = [ForeignLines(log)]
    root.setLevel(max(level, logging.WARNING))
    return log


def _in_order(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Order the fields: time, level and message first."""
    first = ("at", "level", "message")
    return {key: event[key] for key in first if key in event} | dict(event)


def _text(event: Any, **_: Any) -> str:
    try:
        return msgspec.json.encode(event, enc_hook=str).decode()
    except UnicodeEncodeError:  # a text has a lone surrogate
        return json.dumps(event, default=str)


class ForeignLines(logging.Handler):
    """Writes the log records of libraries in the format of our own."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        fields = {"library": record.name}
        if record.exc_info and record.exc_info[1]:
            fields["traceback"] = "".join(traceback.format_exception(record.exc_info[1]))
        self._log.log(level, record.getMessage(), **fields)


@dataclass(frozen=True, eq=False)
class _UnfailingStream:
    """A stream whose reader may close it: a failed write must not end the process."""

    _stream: TextIO

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            return self._stream.write(without_users(text))
        return 0

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def log_failure(log: Log, message: str, error: BaseException, **fields: Any) -> None:
    """Log an expected error as a one-line warning, a bug as an error; bug or debug level add a traceback."""
    is_expected = isinstance(error, EquipoiseError)
    if not is_expected or log.is_enabled_for(logging.DEBUG):
        fields["traceback"] = "".join(traceback.format_exception(error))
    (log.warning if is_expected else log.error)(f"{message}: {description_of(error)}", **fields)


def description_of(error: BaseException | None) -> str:
    is_expected = isinstance(error, EquipoiseError)
    return str(error) if is_expected else f"unexpected {type(error).__name__}: {error}"


@dataclass(slots=True)
class FailedTurnLines:
    """Logs the failed turns of single workloads: once per cause, and again every hour while it lasts."""

    _log: Log
    _monotonic: Callable[[], float]
    _logged_at: dict[tuple[str, str], float] = field(default_factory=dict)

    def log(self, failed: Sequence[FailedTurn]) -> None:
        """Log the failed turns of one cycle, those of the same cause in one line."""
        now, by_cause = self._monotonic(), dict[tuple[str, str], list[FailedTurn]]()
        for each in failed:
            # A bug is identified by its place in the code, an expected error by its subject.
            cause = (each.error.partition(":")[0], each.place) if each.is_bug else (each.subject, "")
            by_cause.setdefault(cause, []).append(each)
        for cause, turns in by_cause.items():
            if now - self._logged_at.get(cause, -math.inf) >= AGAIN_SECONDS:
                self._logged_at[cause] = now
                self._line(turns)
        self._logged_at = {cause: at for cause, at in self._logged_at.items() if now - at < AGAIN_SECONDS}

    def _line(self, turns: Sequence[FailedTurn]) -> None:
        first = turns[0]
        fields: dict[str, Any] = {"subject": first.subject}
        others = ""
        if len(turns) > 1:
            fields |= _listed("subjects", [turn.subject for turn in turns])
            others = f" and {len(turns) - 1} more"
        sentence = f"{first.subject}{others} failed in this cycle, others were not affected: {first.error}"
        if first.is_bug:
            self._log.error(sentence, traceback=first.traceback, **fields)
        else:
            self._log.warning(sentence, **fields)


class DecisionLines:
    """Logs each decision: at info when it has changed, at debug while it stays the same."""

    def __init__(self, log: Log, balancer: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log.bind(balancer=balancer)
        self._failed_turns = FailedTurnLines(self._log, monotonic)
        self._reasons: dict[str, str] = {}
        self._warnings: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def log(self, report: CycleReport) -> None:
        """Log the decisions and warnings of one cycle; forget subjects that no longer exist."""
        with self._lock:
            before, self._reasons = self._reasons, {}
            self._reasons |= {each.subject: each.reason.code.value for each in report.carried}
            for decision in report.decisions:
                code = decision.reason.code.value
                self._reasons[decision.subject] = code
                outcomes = _outcomes_of(decision, report.outcomes)
                has_changed = bool(outcomes) or before.get(decision.subject) != code
                self._line(decision, outcomes, has_changed=has_changed)
            for warning in dict.fromkeys(report.warnings):
                (self._log.debug if warning in self._warnings else self._log.warning)(warning)
            self._warnings = frozenset(report.warnings)
            self._failed_turns.log(report.failed_turns)

    def log_failed(self, failed: Sequence[FailedTurn]) -> None:
        """Log turns that failed after the cycle's report was made."""
        with self._lock:
            self._failed_turns.log(failed)

    def _line(self, decision: Decision, outcomes: Sequence[Outcome], *, has_changed: bool) -> None:
        if not has_changed and not self._log.is_enabled_for(logging.DEBUG):
            return
        reason = decision.reason
        fields = {"subject": decision.subject, "reason": reason.code.value, "numbers": reason.numbers}
        for name, items in (("actions", decision.actions), ("held", decision.held), ("outcomes", outcomes)):
            fields |= _listed(name, items)
        if len(outcomes) > LISTED_MAX:
            fields["results"] = dict(Counter(outcome.result for outcome in outcomes))
        (self._log.info if has_changed else self._log.debug)(reason.sentence, **fields)


def _listed(name: str, items: Sequence[Any]) -> dict[str, Any]:
    """Return at most LISTED_MAX items, and the total number if there are more."""
    if not items:
        return {}
    total = {f"{name}_total": len(items)} if len(items) > LISTED_MAX else {}
    return {name: msgspec.to_builtins(items[:LISTED_MAX])} | total


def _outcomes_of(decision: Decision, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return the outcomes of a decision's actions; looked up by pod, since not all actions can be hashed."""
    by_pod: dict[str, list[Any]] = {}
    for action in decision.actions:
        by_pod.setdefault(action.pod, []).append(action)
    return [outcome for outcome in outcomes if outcome.action in by_pod.get(outcome.action.pod, ())]


REPEAT_SECONDS = 60.0
"""The minimum interval between two lines about a part whose error changes its text."""


@dataclass(slots=True)
class ErrorReporter:
    """Logs the errors of background parts: once when they begin, and once when they end."""

    _log: Log
    _sources: Callable[[], Mapping[str, str]]
    """Returns the current errors by the part's name."""
    _monotonic: Callable[[], float] = time.monotonic
    _logged: dict[str, tuple[str, float]] = field(default_factory=dict)

    def report(self) -> None:
        """Log the errors that began or ended since the last call."""
        now, found = self._monotonic(), self._sources()
        for part, what in found.items():
            before, at = self._logged.get(part, ("", -REPEAT_SECONDS))
            if part not in self._logged or (what != before and now - at >= REPEAT_SECONDS):
                self._log.warning(f"{part}: {what}", part=part)
                self._logged[part] = (what, now)
        for part in self._logged.keys() - found.keys():
            del self._logged[part]
            self._log.info(f"{part}: recovered", part=part)
