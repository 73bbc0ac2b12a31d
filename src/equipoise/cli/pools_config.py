"""`equipoise pools config`: the tiers of the pools and their targets."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from equipoise.cli import options
from equipoise.cli.options import option
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.pools import PoolCode
from equipoise.runtime.output import Format, read_yaml, warn

if TYPE_CHECKING:
    from equipoise.adapters.redis import RedisPools
    from equipoise.core.pools import PoolsSnapshot
    from equipoise.pools.policy import TierPolicy

config = options.group("Show and change the tiers and their targets.")


@config.command("get")
@options.expanded
def get_config(
    *,
    server: options.RedisOptions,
    output: Annotated[
        Format | None,
        typer.Option("-o", "--output", help="Output format; by default table on a terminal, else yaml."),
    ] = None,
) -> None:
    """Print the tiers and their targets.

    Into a pipe or file, and with -o yaml or json, it prints the document that `config set --from` reads.
    """
    from equipoise.cli.pools_output import print_config

    shown = Format.TABLE if sys.stdout is not None and sys.stdout.isatty() else Format.YAML
    print_config(server.read()[0], output or shown)


@config.command("set")
@options.expanded
def set_config(
    *,
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=PODS",
            help="Target of a tier; a new tier is NAME=exclusive:PODS or "
            "NAME=shared:PODS:CALLS. Separate several "
            "by commas.",
        ),
    ] = None,
    file: Annotated[
        str | None, option("FILE", "YAML or JSON file with all tiers; - is standard input.", "--from")
    ] = None,
    server: options.RedisOptions,
    is_dry_run: options.DryRun = False,
    output: options.Output = Format.TABLE,
) -> None:
    """Change targets, or with --from, replace all tiers.

    A tier that still has pods cannot be removed, and its type cannot change.
    """
    from equipoise.cli.pools_output import print_config
    from equipoise.pools.policy import unfilled

    if bool(settings) == (file is not None):
        raise BadInput("config set: expected either NAME=PODS,... or --from FILE")
    with server.opened(is_dry=is_dry_run) as pools:
        policy, snapshot = _store(pools, settings or [], file, server.config_key)
    assigned = sum(len(pool.assigned) for pool in snapshot.pools if pool.tier in policy.chain)
    if warning := unfilled(policy, assigned):
        warn(warning)
    print_config(policy, output)


def _store(
    pools: "RedisPools", settings: list[str], file: str | None, key: str
) -> "tuple[TierPolicy, PoolsSnapshot]":
    from equipoise.pools.policy import policy_from, tiers_to_empty

    # Thorough: a tier that is no longer in the config may still have pods.
    snapshot = pools.snapshot(is_thorough=True)
    old, document = _old_and_new(snapshot, settings, file, key)
    policy = policy_from(document, file or "config set")
    text, to_empty = json.dumps(document, ensure_ascii=False), tiers_to_empty(old, policy, snapshot)
    answer = pools.set_config(text, snapshot.version, to_empty)
    if answer.code is PoolCode.TIER_IN_USE:
        raise BadInput(
            f"config set: {answer.tier}: it still has pods, so it can't be taken away or change its type; "
            f"set {answer.tier}=0 and rebalance first"
        )
    if answer.code is not PoolCode.STORED:
        raise WorldFailed(f"{key}: somebody else changed it meanwhile; nothing was changed")
    return policy, snapshot


def _old_and_new(
    snapshot: "PoolsSnapshot", settings: list[str], file: str | None, key: str
) -> "tuple[TierPolicy | None, dict[str, Any]]":
    from equipoise.core.file_forms import TIERS, form_of_document, refuse_other_form
    from equipoise.pools.policy import apply_changes, read_changes, read_policy

    if file is None:
        old = None if snapshot.config is None else read_policy(snapshot.config, key)
        return old, apply_changes(snapshot.config, read_changes(settings))
    document = read_yaml(file)
    refuse_other_form(form_of_document(document), file, (TIERS,))
    if not isinstance(document, dict):
        raise BadInput(f"{file}: expected a mapping of tiers")
    try:
        return read_policy(snapshot.config, key), document
    except BadInput:
        return None, document  # the stored config is invalid, and --from replaces it
