"""`equipoise pools`: pods in tiers, kept in Redis."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from equipoise.cli import options, pools_config, pools_serve
from equipoise.runtime.output import Format, print_plan, print_sentences, warn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from equipoise.adapters.redis import RedisPools
    from equipoise.core.pools import PoolAnswer, PoolCode

app = typer.Typer(help="Pods in tiers, kept in Redis.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(pools_config.app, name="config")
app.command("serve")(pools_serve.serve)

INTERVAL_MIN_SECONDS, INTERVAL_MAX_SECONDS = 0.1, 86400.0
Call = Annotated[str, typer.Argument(metavar="CALL", help="The name of the call.")]
Pod = Annotated[str, typer.Argument(metavar="POD", help="The name of the pod.")]


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
        call: str = "",
        tier: str = "",
        refused: "Collection[PoolCode] | None" = None,
    ) -> None:
        """Change the pools, and print the answer; `refused` are the answers that are errors."""
        from equipoise.cli.pools_output import REFUSED, tell

        with self.server.opened(is_dry=self.is_dry_run) as pools:
            answer = write(pools)
        bad = REFUSED if refused is None else refused
        tell(answer, self.output, call=call, tier=tier, is_dry=self.is_dry_run, refused=bad)


@app.command()
@options.expanded
def status(*, server: options.RedisOptions, output: options.Output = Format.TABLE) -> None:
    """Show every tier: its target, its pods and their calls. Changes nothing."""
    from equipoise.cli.pools_output import print_status
    from equipoise.pools.observe import status_document
    from equipoise.pools.policy import read_policy

    with server.opened() as pools:
        snapshot = pools.snapshot()
    policy = read_policy(snapshot.config, f"{server.prefix}:tier:config")
    print_status(status_document(policy, snapshot), output)


@app.command()
@options.expanded
def plan(*, server: options.RedisOptions, output: options.Output = Format.TABLE) -> None:
    """Say which pods would move to which tier, and why. Changes nothing."""
    _plan(server, output)


def _plan(server: options.RedisOptions, output: Format) -> None:
    from equipoise.pools import rebalance as rebalancing

    with server.opened() as pools:
        decision, balance = rebalancing.plan(pools)
    _warn_if_missing(balance.missing)
    print_plan("pools", [decision], output)


@app.command()
@options.expanded
def rebalance(
    *,
    server: options.RedisOptions,
    is_dry_run: options.DryRun = False,
    marks_busy: Annotated[
        bool, typer.Option("--mark-busy", help="Mark busy pods, so that their release moves them.")
    ] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Move idle pods from tiers over their targets to tiers under theirs."""
    if is_dry_run:
        _plan(server, output)
        return
    from equipoise.cli.pools_output import log_moves
    from equipoise.core.errors import WorldFailed
    from equipoise.pools import rebalance as rebalancing
    from equipoise.runtime.output import print_done

    with server.opened() as pools:
        done = rebalancing.rebalance(pools, marks_busy=marks_busy)
    log_moves(done.outcomes, len(done.decision.actions))
    _warn_if_missing(done.details.missing)
    print_done("pools", [done.decision], [done.outcomes], output)
    if done.failure:
        raise WorldFailed(done.failure)


@app.command("plan-scale-down")
@options.expanded
def plan_scale_down(
    *,
    replicas: Annotated[int, typer.Argument(metavar="N", min=0, help="How many replicas will be left.")],
    server: options.RedisOptions,
    output: options.Output = Format.TABLE,
) -> None:
    """Say which pods a smaller StatefulSet loses, what to move first, and what later. Changes nothing."""
    from equipoise.pools import decide
    from equipoise.pools.observe import observe
    from equipoise.pools.policy import read_policy

    with server.opened() as pools:
        snapshot = pools.snapshot()
    policy = read_policy(snapshot.config, f"{server.prefix}:tier:config")
    decision, details = decide.plan_scale_down(policy, observe(policy, snapshot), replicas)
    if replicas < policy.pods_targeted:
        warn(
            f"the targets demand {policy.pods_targeted} pods: lower them to {replicas} before the scale-down"
        )
    if details.busy:
        warn(f"these leave with calls, drain them first: {', '.join(details.busy)}")
    if output is Format.TABLE:
        names = ", ".join(each.pod for each in details.leaving)
        print_sentences(f"Leaving: {names or 'nobody'}.", f"Afterwards: {details.after.sentence}")
    print_plan("pools", [decision], output)


@app.command()
@options.expanded
def allocate(
    *,
    call: Annotated[str, typer.Argument(metavar="[CALL]", help="The call's name; made up if missing.")] = "",
    tier: Annotated[
        str, typer.Option(metavar="NAME", help="Only from this tier; by default the chain.")
    ] = "",
    writer: WriterOptions,
) -> None:
    """Give a free pod to a call. The same call gets the same pod again."""
    import secrets

    from equipoise.runtime.redis import call_id, pod_name

    name = call_id(call or secrets.token_hex(16))
    if tier:
        pod_name(tier, "--tier")
    writer.ask(lambda pools: pools.allocate(name, tier), call=name, tier=tier)


@app.command()
@options.expanded
def release(
    *,
    call: Call,
    pod: Annotated[str, typer.Option(metavar="NAME", help="Only when this pod serves it.")] = "",
    writer: WriterOptions,
) -> None:
    """End a call; its pod is free again. A call that has ended already is no error."""
    from equipoise.runtime.redis import call_id, pod_name

    name = call_id(call)
    if pod:
        pod_name(pod, "--pod")
    writer.ask(lambda pools: pools.release(name, pod), call=call)


@app.command()
@options.expanded
def heartbeat(*, call: Call, server: options.RedisOptions, output: options.Output = Format.TABLE) -> None:
    """Say that a call goes on, so that its lease does not end."""
    from equipoise.cli.pools_output import REFUSED
    from equipoise.core.pools import PoolCode
    from equipoise.runtime.redis import call_id

    name = call_id(call)
    refused = REFUSED | {PoolCode.UNKNOWN_CALL}
    writer = WriterOptions(server=server, output=output)
    writer.ask(lambda pools: pools.heartbeat(name), call=call, refused=refused)


@app.command()
@options.expanded
def drain(*, pod: Pod, writer: WriterOptions) -> None:
    """Give a pod no more calls; those it has go on."""
    from equipoise.runtime.redis import pod_name

    name = pod_name(pod)
    writer.ask(lambda pools: pools.drain(name))


@app.command()
@options.expanded
def undrain(*, pod: Pod, writer: WriterOptions) -> None:
    """Give a drained pod calls again."""
    from equipoise.runtime.redis import pod_name

    name = pod_name(pod)
    writer.ask(lambda pools: pools.undrain(name))


@app.command()
@options.expanded
def register(
    *,
    pod: Pod,
    uid: Annotated[str, typer.Option(metavar="UID", help="Guards against a reused name.")] = "",
    writer: WriterOptions,
) -> None:
    """Take a pod into the first tier that needs one, else into the last."""
    from equipoise.runtime.redis import call_id, pod_name

    name = pod_name(pod)
    if uid:
        call_id(uid, "--uid")
    writer.ask(lambda pools: pools.register(name, uid, None))


@app.command()
@options.expanded
def unregister(
    *,
    pod: Pod,
    uid: Annotated[str, typer.Option(metavar="UID", help="Only this incarnation of the pod.")] = "",
    writer: WriterOptions,
) -> None:
    """Forget a pod that is gone, its calls with it. One that is in no tier any more is no error."""
    from equipoise.cli.pools_output import REFUSED
    from equipoise.core.pools import PoolCode
    from equipoise.runtime.redis import call_id, pod_name

    name = pod_name(pod)
    if uid:
        call_id(uid, "--uid")
    writer.ask(lambda pools: pools.unregister(name, uid, None), refused=REFUSED - {PoolCode.NOT_THERE})


@app.command()
@options.expanded
def fsck(
    *,
    server: options.RedisOptions,
    repairs: Annotated[bool, typer.Option("--repair", help="Mend what has only one right end.")] = False,
    output: options.Output = Format.TABLE,
) -> None:
    """List everything about the pools that contradicts itself; exit status 1 when something does."""
    from equipoise.adapters.redis.pools import failed
    from equipoise.cli.pools_output import print_fsck
    from equipoise.core.errors import WorldFailed
    from equipoise.pools.invariants import notes, violations
    from equipoise.pools.policy import read_policy

    with server.opened() as pools:
        snapshot = pools.snapshot(is_thorough=True)
        key = f"{server.prefix}:tier:config"
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
    interval: Annotated[str, typer.Option(metavar="SPAN", help="How long to wait between two looks.")] = "2s",
    times: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many looks; 0 goes on until Ctrl-C.")
    ] = 0,
) -> None:
    """Show the tiers again whenever they change, until Ctrl-C. Changes nothing."""
    from equipoise.cli.pools_output import watch_pools
    from equipoise.core.errors import BadInput

    seconds = options.parse_span("--interval", interval)
    if not INTERVAL_MIN_SECONDS <= seconds <= INTERVAL_MAX_SECONDS:
        raise BadInput(f"--interval: expected 100ms to 1d, got {interval}")
    watch_pools(server, seconds, times)


def _warn_if_missing(missing: int) -> None:
    if missing:
        warn(f"the targets demand {missing} more pods than there are: some tiers stay under their targets")
