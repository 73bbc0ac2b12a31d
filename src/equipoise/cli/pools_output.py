"""Prints the pools as tables and documents, once or, for `equipoise pools watch`, at each change."""

import json
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from equipoise.cli.options import RedisOptions
from equipoise.core.errors import BadInput, EquipoiseError, WorldFailed
from equipoise.core.pools import PoolAnswer, PoolCode, sentence_of
from equipoise.pools.invariants import Invariant, Violation
from equipoise.pools.observe import TierUnreadable, status_document
from equipoise.pools.policy import TierPolicy, TierType, config_document, read_policy
from equipoise.runtime.console import Console, table
from equipoise.runtime.output import Format, plain, print_document, warn

if TYPE_CHECKING:
    from equipoise.adapters.redis import RedisPools
    from equipoise.core.decision import Outcome


REFUSED = {
    PoolCode.NONE_FREE,
    PoolCode.CALL_TAKEN,
    PoolCode.NOT_OWNER,
    PoolCode.LEASE_LOST,
    PoolCode.NOT_THERE,
    PoolCode.MERCHANT,
    PoolCode.UNSOUND,
    PoolCode.OTHER_UID,
    PoolCode.CONFIG_CHANGED,
}
"""Answers that are errors for every operation."""


class WriterReport(Struct, kw_only=True, rename="camel"):
    """What a command prints that changed the pools."""

    result: PoolCode
    pod: str
    tier: str
    call: str | UnsetType = UNSET
    detail: str
    sentence: str
    dry_run: bool


class BrokenInvariant(Struct):
    """One contradiction."""

    invariant: Invariant
    key: str
    detail: str


class Repair(Struct):
    """One attempt to mend a pod."""

    pod: str
    result: PoolCode
    detail: str


class FsckReport(Struct):
    """What `pools fsck` prints."""

    clean: bool
    violations: list[BrokenInvariant]
    repairs: list[Repair]
    notes: list[str]


class TierConfig(Struct):
    """One tier of a config in its longest form."""

    type: TierType
    target: Annotated[int, Meta(ge=0)]
    max_concurrent: Annotated[int, Meta(ge=1)] | UnsetType = UNSET


class PoolsConfig(Struct):
    """A config in its longest form; `pools.policy.config_document` makes it."""

    tiers: Annotated[dict[str, TierConfig], Meta(min_length=1)]
    default_chain: list[str] | UnsetType = UNSET


def tell(
    answer: PoolAnswer,
    form: Format,
    *,
    call: str,
    tier: str,
    is_dry: bool,
    refused: Collection[PoolCode] | None,
) -> None:
    """Print the answer of one change; one of `refused`, by default `REFUSED`, is also an error."""
    sentence = sentence_of(answer, call=call, tier=tier)
    if answer.code is PoolCode.NO_TIER:
        raise BadInput(f"{sentence}, got {tier!r}")
    is_refused = answer.code in (REFUSED if refused is None else refused)
    if form is not Format.TABLE:
        report = WriterReport(
            result=answer.code,
            pod=answer.pod,
            tier=answer.tier or tier,
            call=call or UNSET,
            detail=answer.detail,
            sentence=sentence,
            dry_run=is_dry,
        )
        print_document(report, form)
    elif not is_refused:
        print(f"{sentence} Nothing was changed." if is_dry else sentence)
    if is_refused:
        raise WorldFailed(sentence.removesuffix("."))


def print_status(document: Mapping[str, Any], form: Format) -> None:
    """Print the tiers; the pods of each are in the document only."""
    for warning in document["warnings"]:
        warn(warning)
    if form is not Format.TABLE:
        print_document(document, form)
        return
    Console().print(status_table(document["tiers"]))


def status_table(tiers: Sequence[Mapping[str, Any]]) -> Any:
    from rich.text import Text

    counts = ("TARGET", "ASSIGNED", "FREE", "BUSY", "DRAINING", "CALLS")
    laid_out = table("TIER", "TYPE", *counts, "", right=counts, folded=("TIER",))
    for tier in tiers:
        diff = tier["diff"]
        deviation = f"over by {diff}" if diff > 0 else f"under by {-diff}" if diff < 0 else ""
        numbers = (tier[name] for name in ("target", "assigned", "available", "busy", "draining", "calls"))
        laid_out.add_row(tier["tier"], tier["type"], *map(str, numbers), Text(deviation, style="bold yellow"))
    return laid_out


def print_fsck(
    found: Sequence[Violation], notes: Sequence[str], mended: Sequence[PoolAnswer], form: Format
) -> None:
    """Print what is inconsistent, what was repaired, and the warnings."""
    if form is not Format.TABLE:
        broken = [BrokenInvariant(each.invariant, each.key, each.detail) for each in found]
        repairs = [Repair(each.pod, each.code, each.detail) for each in mended]
        print_document(FsckReport(not found, broken, repairs, list(notes)), form)
        return
    for repair in mended:
        print(plain(f"{repair.pod or 'epoch'}: {repair.code.value}: {repair.detail or repair.tier}"))
    for each in found:
        print(plain(f"{each.invariant.value}  {each.key}: {each.detail}"))
    for note in notes:
        print(plain(f"note: {note}"), file=sys.stderr)
    if not found:
        print("The pools are clean.")


def log_moves(outcomes: "Sequence[Outcome]") -> None:
    """Print the seed's log lines about moves on standard error."""
    from equipoise.pools.balancer import move_lines

    for line in move_lines(outcomes):
        _log(line.event, line.fields)
    for outcome in outcomes:
        if outcome.detail:
            warn(f"{outcome.action.pod}: {outcome.detail}")


def log_unreadable(error: TierUnreadable) -> None:
    """Print the seed's log line about a tier that cannot be counted."""
    _log("rebalance: failed to get assigned count", {"tier": error.tier, "error": str(error)})


def _log(event: str, fields: Mapping[str, object]) -> None:
    told = (f"{name}={_quoted(str(value)) if name == 'error' else value}" for name, value in fields.items())
    print(plain(" ".join((f'"{event}"', *told))), file=sys.stderr)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def watch_pools(server: RedisOptions, seconds: float, times: int) -> None:
    """Print the tiers repeatedly, until the number of snapshots or Ctrl-C."""
    with server.opened() as pools, suppress(KeyboardInterrupt):
        _watch(pools, server.config_key, seconds, times)


def _watch(pools: "RedisPools", key: str, seconds: float, times: int) -> None:
    """Print changes; a server or a config that disappears later is reported and waited for."""
    console = Console()
    before: Any = None
    snapshots = 0
    while True:
        try:
            snapshot = pools.snapshot()
            now: Any = status_document(read_policy(snapshot.config, key), snapshot)["tiers"]
        except EquipoiseError as error:
            if before is None:
                raise
            now = str(error)
        if now != before:
            console.print(time.strftime("%H:%M:%S"), style="dim")
            console.print(now if isinstance(now, str) else status_table(now))
            console.file.flush()
            before = now
        snapshots += 1
        if snapshots == times:
            return
        time.sleep(seconds)


def print_config(policy: TierPolicy, form: Format) -> None:
    """Print the tiers, in the order of the chain; other forms are what `pools config set --from` reads."""
    if form is not Format.TABLE:
        print_document(config_document(policy), form)
        return
    laid_out = table("TIER", "TYPE", "TARGET", "CALLS PER POD", "IN CHAIN", right=("TARGET", "CALLS PER POD"))
    for name in [*policy.chain, *sorted(set(policy.tiers) - set(policy.chain))]:
        tier = policy.tiers[name]
        calls = str(tier.concurrent_max) if tier.is_shared else "1"
        laid_out.add_row(
            name, tier.type.value, str(tier.target), calls, "yes" if name in policy.chain else "no"
        )
    Console().print(laid_out)
