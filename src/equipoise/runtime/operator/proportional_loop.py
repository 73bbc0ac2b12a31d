"""The loop of proportional scaling, wired to a cluster."""

from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.sizes import CachedSizes
from equipoise.proportional.loop import ProportionalLoop
from equipoise.proportional.parse import SCALING_POLICY
from equipoise.runtime.operator.loops import Wiring
from equipoise.runtime.settings import Settings


def proportional_loop(wiring: Wiring, settings: Settings) -> ProportionalLoop:
    """Make the loop, and have its policies and the DaemonSets watched."""
    kind = SCALING_POLICY
    policies = KubernetesPolicies(
        wiring.client,
        group=kind.group,
        version=kind.version,
        name=kind.name,
        plural=kind.plural,
        namespaces=settings.namespaces,
    )
    sizes = CachedSizes(wiring.client, wiring.cluster, settings.namespaces)
    wiring.watch(policies.reflector)
    for reflector in sizes.reflectors.values():
        wiring.watch(reflector)
    return ProportionalLoop(
        cluster=wiring.cluster,
        sizes=sizes,
        policies=policies,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        store=wiring.store,
        actuator=wiring.actuator,
        journal=wiring.journal,
        new_id=wiring.record_ids.next,
        mode=settings.compat.mode,
        interval_seconds=settings.intervals.proportional_seconds,
        change_seconds=settings.proportional.change_seconds,
        rollout_seconds=settings.proportional.rollout_seconds,
        sees_all_pods=not settings.namespaces,
        beat=wiring.beat,
        now=wiring.clock.now,
    )
