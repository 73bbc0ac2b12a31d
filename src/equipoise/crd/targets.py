"""The workloads of a policy, whether it may act on them, and when.

Maintenance windows open on a schedule in the local time of a zone. With windows, a policy holds its actions
outside all of them.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Self
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from equipoise.core.cluster import Requirement, Selector
from equipoise.core.reason import Code, Reason
from equipoise.crd.fields import Name, SchemaPart, Span, Text, rule, rules

VALUES_RULE = "expected values with In and NotIn, and none with Exists and DoesNotExist"

LabelKey = Annotated[
    str,
    Text(
        r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "a label's key such as tier or example.com/tier",
        317,
    ),
]
LabelValue = Annotated[
    str,
    Text(
        r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", "a label's value of letters, digits, -, _ and .", 63
    ),
]
ApiVersion = Annotated[
    str,
    Text(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$",
        "an API version such as apps/v1",
        317,
    ),
]
KindName = Annotated[str, Text(r"^[A-Z][A-Za-z0-9]*$", "a kind such as Deployment", 63)]


class Mode(StrEnum):
    """Whether the operator acts for a policy or only says what it would do."""

    PREVIEW = "Preview"
    ENFORCE = "Enforce"


class WorkloadTarget(SchemaPart):
    """One workload, in the policy's own namespace."""

    api_version: ApiVersion = Field(
        "apps/v1", alias="apiVersion", description="The API version of the workload's kind."
    )
    kind: KindName = Field(description="Deployment, StatefulSet, or any kind with a scale subresource.")
    name: Name = Field(description="The workload's name.")


class Operator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelTerm(SchemaPart):
    """One term of a label selector."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                VALUES_RULE,
            )
        )
    )

    key: LabelKey = Field(description="The label's key.")
    operator: Operator = Field(description="How the label is compared.")
    values: tuple[LabelValue, ...] = Field((), max_length=50, description="What In and NotIn compare with.")

    @model_validator(mode="after")
    def _has_values_where_needed(self) -> Self:
        if (self.operator in {Operator.IN, Operator.NOT_IN}) != bool(self.values):
            raise ValueError(VALUES_RULE)
        return self


class LabelSelector(SchemaPart):
    """Workloads by their labels, in the policy's own namespace; all terms must hold, and {} takes all."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        {}, alias="matchLabels", max_length=50, description="Labels that a workload must have."
    )
    match_expressions: tuple[LabelTerm, ...] = Field(
        (), alias="matchExpressions", max_length=50, description="Terms that must hold as well."
    )

    @property
    def selector(self) -> Selector:
        exact = [Requirement(key, "In", (value,)) for key, value in sorted(self.match_labels.items())]
        terms = [Requirement(term.key, term.operator.value, term.values) for term in self.match_expressions]
        return Selector((*exact, *terms))


SCHEDULE = Text(
    r"^[0-9A-Za-z*/,#-]+( +[0-9A-Za-z*/,#-]+){4}$",
    "a cron schedule of five fields such as '0 2 * * 1-5'",
    100,
)
ZONE = Text(r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$", "an IANA time zone such as Europe/Berlin", 64)
WINDOW_SECONDS_MAX = 31 * 86400.0
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
"""Any day will do to see whether a schedule ever comes true."""


def _schedule(text: str) -> str:
    try:
        next(CronSim(text, _SOME_DAY))
    except StopIteration:
        raise ValueError(f"expected a schedule that comes true some day, got {text!r}") from None
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        why = f" ({error})" if isinstance(error, CronSimError) else ""
        raise ValueError(f"expected {SCHEDULE.expected}, got {text!r}{why}") from error
    return text


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """Return the zones of the tzdata package: the same on every machine, whatever its system knows."""
    from importlib.resources import files  # noqa: PLC0415 - most processes read no window

    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


def _zone(name: str) -> str:
    if name not in _zones():
        raise ValueError(f"expected {ZONE.expected}, got {name!r}")
    return name


class Window(SchemaPart):
    """A span of time that opens again and again."""

    schedule: Annotated[str, SCHEDULE, AfterValidator(_schedule)] = Field(
        description="When it opens: a cron schedule of five fields, such as 0 2 * * 1-5."
    )
    duration_seconds: Annotated[float, Span(60, WINDOW_SECONDS_MAX)] = Field(
        alias="duration", description="How long it stays open, such as 2h."
    )
    time_zone: Annotated[str, ZONE, AfterValidator(_zone)] = Field(
        "UTC",
        alias="timeZone",
        description="The IANA zone that the schedule is written in; daylight-saving changes are followed.",
    )


def held_by_window(windows: Sequence[Window], at: float) -> Reason | None:
    """Return the reason to hold outside all windows; a policy without windows may always act."""
    # A window is open where an opening lies within its last `duration`: spans are real time, schedules local.
    now = datetime.fromtimestamp(at, UTC)
    if not windows or any(_next_opening(one, at - one.duration_seconds) <= now for one in windows):
        return None
    opens = min(_next_opening(window, at) for window in windows)
    return Reason(
        Code.HELD_BY_WINDOW,
        f"No maintenance window is open; the next one opens at {opens.isoformat(timespec='minutes')}.",
        {"opens_at": opens.timestamp()},
    )


def _next_opening(window: Window, after: float) -> datetime:
    """Return the first opening later than a moment.

    In an hour that comes twice, cronsim knows only the first: asked in the second, it tells of what is past.
    """
    start = datetime.fromtimestamp(after, UTC)
    openings = CronSim(window.schedule, start.astimezone(ZoneInfo(window.time_zone)))
    return next(opening for each in openings if (opening := each.astimezone(UTC)) > start)
