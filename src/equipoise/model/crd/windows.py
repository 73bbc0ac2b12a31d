"""When a policy may act: windows that open on a schedule, in a zone's own time."""

from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Annotated

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator, Field

from equipoise.model.crd.fields import Part, Span, Text

SCHEDULE = Text(
    r"^[0-9A-Za-z*/,#-]+( +[0-9A-Za-z*/,#-]+){4}$",
    "a cron schedule of five fields such as '0 2 * * 1-5'",
    100,
)
ZONE = Text(
    r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$",
    "an IANA time zone such as Europe/Berlin",
    64,
)
SPAN_SECONDS_MAX = 31 * 86400.0
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
    """List the zones of the tzdata package: the same on every machine, whatever its system knows."""
    return frozenset((files("tzdata") / "zones").read_text(encoding="utf-8").split())


def _zone(name: str) -> str:
    if name not in _zones():
        raise ValueError(f"expected {ZONE.expected}, got {name!r}")
    return name


class Window(Part):
    """A span of time that opens again and again."""

    schedule: Annotated[str, SCHEDULE, AfterValidator(_schedule)] = Field(
        description="When it opens: a cron schedule of five fields, such as 0 2 * * 1-5."
    )
    duration_seconds: Annotated[float, Span(60, SPAN_SECONDS_MAX)] = Field(
        alias="duration", description="How long it stays open, such as 2h."
    )
    time_zone: Annotated[str, ZONE, AfterValidator(_zone)] = Field(
        "UTC",
        alias="timeZone",
        description="The IANA zone that the schedule is written in; daylight-saving changes are followed.",
    )
