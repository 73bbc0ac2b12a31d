"""`equipoise pools config`: the tiers and their targets."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli import options
from equipoise.runtime.output import Format, print_document, warn

if TYPE_CHECKING:
    from equipoise.adapters.redis import RedisPools
    from equipoise.core.pools import PoolsSnapshot
    from equipoise.pools.policy import TierPolicy

app = typer.Typer(help="The tiers and their targets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("get")
@options.expanded
def get(*, server: options.RedisOptions, output: options.Output = Format.TABLE) -> None:
    """Print the tiers, in a shape that `config set --from` takes."""
    from equipoise.pools.policy import read_policy

    with server.opened() as pools:
        snapshot = pools.snapshot()
    _print(read_policy(snapshot.config, f"{server.prefix}:tier:config"), output)


@app.command("set")
@options.expanded
def set_(
    *,
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME=PODS,...", help="Or NAME=exclusive|shared:PODS[:CALLS] for a new tier."),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="The whole config; - is standard input.")
    ] = None,
    server: options.RedisOptions,
    is_dry_run: options.DryRun = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Change targets, or with --from the whole config. Tiers with pods cannot be taken away or retyped."""
    from equipoise.core.errors import BadInput

    if bool(settings) == (file is not None):
        raise BadInput("config set: expected either NAME=PODS,... or --from FILE")
    with server.opened(is_dry=is_dry_run) as pools:
        policy, snapshot = _store(pools, settings or [], file, server.prefix)
    _warn_if_unfilled(policy, snapshot)
    _print(policy, output)


def _store(
    pools: "RedisPools", settings: list[str], file: str | None, prefix: str
) -> "tuple[TierPolicy, PoolsSnapshot]":
    import json

    from equipoise.core.errors import BadInput, WorldFailed
    from equipoise.core.pools import PoolCode
    from equipoise.pools.policy import policy_from, tiers_to_empty

    # Thorough: a tier that is no longer in the config may still have pods.
    snapshot = pools.snapshot(is_thorough=True)
    old, document = _old_and_new(snapshot, settings, file, prefix)
    policy = policy_from(document, file or "config set")
    answer = pools.set_config(
        json.dumps(document, ensure_ascii=False), snapshot.version, tiers_to_empty(old, policy, snapshot)
    )
    if answer.code is PoolCode.TIER_IN_USE:
        raise BadInput(
            f"config set: {answer.tier}: it still has pods, so it can't be taken away or change its type; "
            f"set {answer.tier}=0 and rebalance first"
        )
    if answer.code is not PoolCode.STORED:
        raise WorldFailed(f"{prefix}:tier:config: somebody else changed it meanwhile; nothing was changed")
    return policy, snapshot


def _old_and_new(
    snapshot: "PoolsSnapshot", settings: list[str], file: str | None, prefix: str
) -> "tuple[TierPolicy | None, dict[str, Any]]":
    """Return the config as it is, and as it should be."""
    from equipoise.core.errors import BadInput
    from equipoise.pools.policy import apply_changes, read_changes, read_policy
    from equipoise.runtime.output import read_yaml

    source = f"{prefix}:tier:config"
    if file is None:
        old = None if snapshot.config is None else read_policy(snapshot.config, source)
        return old, apply_changes(snapshot.config, read_changes(settings))
    document = read_yaml(file)
    if not isinstance(document, dict):
        raise BadInput(f"{file}: expected a mapping of tiers")
    try:
        return read_policy(snapshot.config, source), document
    except BadInput:
        return None, document  # the stored config is invalid, and --from replaces it


def _warn_if_unfilled(policy: "TierPolicy", snapshot: "PoolsSnapshot") -> None:
    from equipoise.pools.policy import unfilled

    warning = unfilled(
        policy, sum(len(pool.assigned) for pool in snapshot.pools if pool.tier in policy.chain)
    )
    if warning:
        warn(warning)


def _print(policy: "TierPolicy", output: Format) -> None:
    from equipoise.pools.policy import config_document

    document = config_document(policy)
    if output is not Format.TABLE:
        print_document(document, output)
        return
    for name in [*policy.chain, *sorted(set(policy.tiers) - set(policy.chain))]:
        tier = policy.tiers[name]
        calls = f", {tier.concurrent_max} calls a pod" if tier.is_shared else ""
        aside = "" if name in policy.chain else ", not in the chain"
        pods = "1 pod" if tier.target == 1 else f"{tier.target} pods"
        print(f"{name}: {pods}, {tier.type.value}{calls}{aside}")
