"""`equipoise pools`: pods in tiers, kept in Redis; `equipoise pools config`: the tiers and their targets."""

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options, pools_config, pools_serve
from equipoise.cli.journal import write_plan
from equipoise.cli.options import option
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.pools import PoolCode
from equipoise.runtime.output import Format, print_plan, print_sentences, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from equipoise.adapters.redis import RedisPools
    from equipoise.core.pools import PoolAnswer

app = options.group("Move idle pods between service tiers in Redis.")
app.add_typer(pools_config.config, name="config")
app.command("serve")(pools_serve.serve)

INTERVAL_MIN_SECONDS, INTERVAL_MAX_SECONDS = 0.1, 86400.0
Call = Annotated[str, typer.Argument(metavar="CALL", help="Name of the call.")]
Pod = Annotated[str, typer.Argument(metavar="POD", help="Name of the pod.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterOptions:
    """The options of every command that changes the pools."""

    server: options.RedisOptions
    is_dry_run: options.DryRun = False
    output: options.Output = Format.TABLE

    def ask(
        self,
        write: "Callable[[RedisPools], PoolAnswer]",
        *,
        call: str | None = None,
        pod: str | None = None,
        uid: str = "",
        tier: str = "",
        refused: "Collection[PoolCode] | None" = None,
    ) -> None:
        """Check the names, change the pools, print the answer; one of `refused` is an error."""
        from equipoise.cli.pools_output import tell
        from equipoise.runtime.redis import call_id, pod_name

        if call is not None:
            call_id(call)
        if pod is not None:
            pod_name(pod)
        if uid:
            call_id(uid, "--uid")
        if tier:
            pod_name(tier, "--tier")
        with self.server.opened(is_dry=self.is_dry_run) as pools:
            answer = write(pools)
        tell(answer, self.output, call=call or "", tier=tier, is_dry=self.is_dry_run, refused=refused)


@app.command()
@options.expanded
def status(*, server: options.RedisOptions, output: options.Output = Format.TABLE) -> None:
    """Show the target, the pods and the calls of every tier. Changes nothing."""
    from equipoise.cli.pools_output import print_status
    from equipoise.pools.observe import status_document

    print_status(status_document(*server.read()), output)


@app.command()
@options.expanded
def plan(
    *, server: options.RedisOptions, output: options.Output = Format.TABLE, journal: options.Journal = None
) -> None:
    """Show which pods would move to which tier, and why. Changes nothing."""
    _plan(server, output, journal)


def _plan(server: options.RedisOptions, output: Format, journal: str | None = None) -> None:
    from equipoise.engine.recording import as_json
    from equipoise.pools.decide import decide
    from equipoise.pools.observe import observe

    policy, snapshot = server.read()
    observation = observe(policy, snapshot)
    decision, balance = decide(policy, observation)
    _warn_if_missing(balance.missing)
    then = "`equipoise pools rebalance`, with the same options, moves these pods"
    print_plan("pools", [decision], output, then=then)
    write_plan(journal, "pools", as_json(policy.model_dump(by_alias=True)), observation, {}, decision)


@app.command()
@options.expanded
def rebalance(
    *,
    server: options.RedisOptions,
    is_dry_run: options.DryRun = False,
    marks_busy: Annotated[
        bool, typer.Option("--mark-busy", help="Also mark busy pods, which move when their last call ends.")
    ] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Move idle pods from tiers above their targets to tiers below theirs."""
    if is_dry_run:
        _plan(server, output)
        return
    from equipoise.cli.pools_output import log_moves, log_unreadable
    from equipoise.pools import rebalance as rebalancing
    from equipoise.pools.observe import TierUnreadable

    with server.opened() as pools:
        try:
            done = rebalancing.rebalance(pools, marks_busy=marks_busy)
        except TierUnreadable as error:
            log_unreadable(error)
            raise
    log_moves(done.outcomes)
    _warn_if_missing(done.details.missing)
    print_plan("pools", [done.decision], output, [done.outcomes])
    if done.failure:
        raise WorldFailed(done.failure)


@app.command("plan-scale-down")
@options.expanded
def plan_scale_down(
    *,
    replicas: Annotated[
        int, typer.Argument(metavar="N", min=0, help="Number of replicas after the scale-down.")
    ],
    server: options.RedisOptions,
    output: options.Output = Format.TABLE,
) -> None:
    """Show which pods a scale-down of the StatefulSet deletes, and which to move first. Changes nothing."""
    from equipoise.pools import decide
    from equipoise.pools.observe import observe

    policy, snapshot = server.read()
    decision, details = decide.plan_scale_down(policy, observe(policy, snapshot), replicas)
    if replicas < policy.pods_targeted:
        demand = f"the targets require {policy.pods_targeted} pods"
        warn(f"{demand}: lower them to {replicas} before the scale-down")
    if details.busy:
        warn(f"these leave with calls, drain them first: {', '.join(details.busy)}")
    if output is Format.TABLE:
        names = ", ".join(each.pod for each in details.leaving)
        print_sentences(f"Leaving: {names or 'nobody'}.", f"Afterwards: {details.after.sentence}")
    print_plan("pools", [decision], output)


@app.command(has_table=False)
@options.expanded
def allocate(
    *,
    call: Annotated[
        str, typer.Argument(metavar="[CALL]", help="Name of the call; generated by default.")
    ] = "",
    tier: Annotated[
        str, option("NAME", "Allocate from this tier only; by default from the tiers of the chain, in order.")
    ] = "",
    writer: WriterOptions,
) -> None:
    """Allocate a free pod to a call. A call that already has a pod gets the same one."""
    name = call or secrets.token_hex(16)
    writer.ask(lambda pools: pools.allocate(name, tier), call=name, tier=tier)


@app.command(has_table=False)
@options.expanded
def release(
    *,
    call: Call,
    pod: Annotated[str, option("NAME", "Release the call only if this pod serves it.")] = "",
    writer: WriterOptions,
) -> None:
    """End a call and free its pod. Succeeds if the call has already ended."""
    from equipoise.runtime.redis import call_id, pod_name

    call_id(call)
    if pod:
        pod_name(pod, "--pod")
    writer.ask(lambda pools: pools.release(call, pod), call=call)


@app.command(has_table=False)
@options.expanded
def heartbeat(*, call: Call, server: options.RedisOptions, output: options.Output = Format.TABLE) -> None:
    """Renew the lease of a call that is still active."""
    from equipoise.cli.pools_output import REFUSED

    writer = WriterOptions(server=server, output=output)
    refused = REFUSED | {PoolCode.UNKNOWN_CALL}
    writer.ask(lambda pools: pools.heartbeat(call), call=call, refused=refused)


@app.command(has_table=False)
@options.expanded
def drain(*, pod: Pod, writer: WriterOptions) -> None:
    """Stop allocating calls to a pod. Its current calls continue."""
    writer.ask(lambda pools: pools.drain(pod), pod=pod)


@app.command(has_table=False)
@options.expanded
def undrain(*, pod: Pod, writer: WriterOptions) -> None:
    """Allow calls to a drained pod again."""
    writer.ask(lambda pools: pools.undrain(pod), pod=pod)


@app.command(has_table=False)
@options.expanded
def register(
    *,
    pod: Pod,
    uid: Annotated[str, option("UID", "UID of the pod, to tell it from a later pod of the same name.")] = "",
    writer: WriterOptions,
) -> None:
    """Add a pod to the first tier below its target, or else to the last tier."""
    writer.ask(lambda pools: pools.register(pod, uid, None), pod=pod, uid=uid)


@app.command(has_table=False)
@options.expanded
def unregister(
    *,
    pod: Pod,
    uid: Annotated[str, option("UID", "Remove the pod only if it has this UID.")] = "",
    writer: WriterOptions,
) -> None:
    """Remove a pod that is gone, with its calls. Succeeds if the pod is in no tier."""
    from equipoise.cli.pools_output import REFUSED

    refused = REFUSED - {PoolCode.NOT_THERE}
    writer.ask(lambda pools: pools.unregister(pod, uid, None), pod=pod, uid=uid, refused=refused)


@app.command(has_table=False)
@options.expanded
def fsck(
    *,
    server: options.RedisOptions,
    repairs: Annotated[
        bool, typer.Option("--repair", help="Repair violations that have only one possible repair.")
    ] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """List contradictions between the keys of the pools. The exit status is 1 if there are any."""
    from equipoise.adapters.redis.pools import failed
    from equipoise.cli.pools_output import print_fsck
    from equipoise.pools.invariants import notes, violations
    from equipoise.pools.policy import read_policy

    with server.opened() as pools:
        snapshot = pools.snapshot(is_thorough=True)
        key = server.config_key
        policy = None if key in snapshot.wrong else read_policy(snapshot.config, key)
        found = violations(policy, snapshot)
        mended: list[PoolAnswer] = []
        pods: list[str] = []
        if repairs and found and policy is not None:
            odd = [""] if snapshot.unreadable_epoch is not None else []
            pods = [*odd, *dict.fromkeys(each.pod for each in found if each.pod)]
        try:
            for pod in pods:
                repair = pools.repair(pod, snapshot.epoch) if pod else pools.forget_odd_epoch()
                mended.append(repair)
            if pods:
                snapshot = pools.snapshot(is_thorough=True)
                found = violations(policy, snapshot)
            eviction = pools.eviction()
        except WorldFailed as error:
            if len(mended) < len(pods):
                mended.append(failed(error, pods[len(mended)]))
            print_fsck(found, notes(policy, snapshot), mended, output)
            raise
    warnings = [*notes(policy, snapshot), *([eviction] if eviction else [])]
    print_fsck(found, warnings, mended, output)
    if found:
        count = "1 violation" if len(found) == 1 else f"{len(found)} violations"
        raise WorldFailed(f"{server.prefix}: {count}; the first is {found[0].key}: {found[0].detail}")


@app.command()
@options.expanded
def watch(
    *,
    server: options.RedisOptions,
    interval: Annotated[str, option("DURATION", "Time between two snapshots.")] = "2s",
    times: Annotated[int, option("N", "Number of snapshots; 0 continues until Ctrl-C.", min=0)] = 0,
) -> None:
    """Print the tiers whenever they change, until Ctrl-C. Changes nothing."""
    from equipoise.cli.pools_output import watch_pools

    seconds = options.parse_span("--interval", interval)
    if not INTERVAL_MIN_SECONDS <= seconds <= INTERVAL_MAX_SECONDS:
        raise BadInput(f"--interval: expected 100ms to 1d, got {interval}")
    watch_pools(server, seconds, times)


def _warn_if_missing(missing: int) -> None:
    if missing:
        warn(f"the targets require {missing} more pods than exist, so some tiers stay below their targets")
