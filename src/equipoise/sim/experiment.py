"""A workload whose pods are unequal, and the production loop of rotation in its cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Record
from equipoise.core.ledger import Ledger
from equipoise.engine.isolation import Isolation
from equipoise.ports import FailedTurn, Journal
from equipoise.rotation.loop import DEFAULTS, CyclePlanner, RotationLoop
from equipoise.rotation.observe import Ports
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.progress import BALANCER, RotationMemory
from equipoise.rotation.status import assign
from equipoise.sim import template as names
from equipoise.sim.load import Constant, Even, Partitions, Sharing, StickyConnections
from equipoise.sim.state import WorkloadState
from equipoise.sim.template import Budget, Template
from equipoise.sim.world import World

CAUSES: dict[str, Callable[[int], Sharing]] = {
    "even": lambda seed: Even(),  # noqa: ARG005 - one form for all
    "key skew": lambda seed: Partitions.skewed(seed, 64),
    "stale counts": lambda seed: Partitions.stale(24),  # noqa: ARG005
    "connections": lambda seed: StickyConnections(600, renewed_per_second=0.05),  # noqa: ARG005
}
"""What can make the pods of a workload unequal; a noisy node is a matter of the node."""
NOISY_NODE = "noisy node"
IMBALANCES = (*(cause for cause in CAUSES if cause != "even"), NOISY_NODE)
"""Why the pods of one workload can be unequal."""


@dataclass(frozen=True, slots=True)
class Unbalanced:
    """A world with one workload whose pods are unequal."""

    world: World
    workload: WorkloadState


def unbalanced(seed: int, cause: str, *, pods: int = 6, age_seconds: float = 900.0) -> Unbalanced:
    """Make one workload that is unequal for one cause, with its mean at its HPA's target of 70 %.

    Its pods have been under this load for `age_seconds`. Whether one of them is hot is up to the seed.
    """
    world = World(seed)
    rng = names.seeded(seed, "scene")
    _add_unequal_nodes(world, rng, pods, noise=rng.uniform(1.8, 3.0) if cause == NOISY_NODE else 1.0)
    # Little work at first: the autoscaler must not scale before all pods are ready.
    workload = world.add_workload(
        "shop",
        "web",
        replicas=pods,
        shape=Constant(_AT_TARGET_CORES * pods / 10),
        sharing=CAUSES.get(cause, CAUSES["even"])(rng.randrange(2**32)),
    )
    world.add_pdb("shop", "web", Budget(max_unavailable=1))
    if cause == "connections":
        _grow_up(world, workload, rng.randint(max(pods // 3, 1), max(pods // 2, 1)))
    _run_until_whole(world, workload)
    world.add_hpa(workload, replicas_min=pods, replicas_max=2 * pods)
    used_cores = sum(pod.rate_cores for pod in workload.pods.values())
    workload.shape = Constant(workload.demand_cores * _AT_TARGET_CORES * pods / used_cores)
    world.advance(age_seconds)
    return Unbalanced(world, workload)


_AT_TARGET_CORES = 0.7
"""What a pod of the default template uses when it is as busy as its HPA wants it."""


def _add_unequal_nodes(world: World, rng: Random, pods: int, noise: float) -> None:
    """Add nodes of several sizes, so that a scheduler has a preference; it knows nothing of noise."""
    count = max(3, 2 * pods // 3)
    noisy = rng.randrange(count)
    for number in range(count):
        factor = noise if number == noisy else 1.0
        world.add_node(f"node-{number:04}", cpu_cores=rng.choice((32, 48, 64)), cpu_factor=factor)


def _grow_up(world: World, workload: WorkloadState, first: int) -> None:
    """Scale up after a rollout of fewer pods: these get all connections."""
    replicas = workload.replicas
    world.scale(workload, first)
    _run_until_whole(world, workload)
    world.roll_out(workload, Template())
    _run_until_whole(world, workload)
    world.scale(workload, replicas)


def _run_until_whole(world: World, workload: WorkloadState) -> None:
    world.advance(5)
    while not is_whole(workload):
        world.advance(5)


def is_whole(workload: WorkloadState) -> bool:
    """Return whether all pods that are wanted serve, in the newest revision, and no other is there."""
    serving = [pod for pod in workload.serving_pods() if pod.revision == workload.revision]
    return len(serving) == len(workload.pods) == workload.replicas


CYCLE_SECONDS = 30.0


class OnlyLeader:
    """Is always the leader: a study has one replica."""

    def epoch(self) -> int | None:
        return 1


class NoJournal:
    """Drops all records: a study reads the simulated cluster only."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Forget these."""


def enforce(world: World, settings: Mapping[str, Any]) -> None:
    """Ask for the rotation of all workloads there are, with these settings of the policy."""
    for namespace in world.state.namespaces:
        world.policies.add(namespace, "all", {**settings, "selector": {}, "mode": "Enforce"})


def ports(
    world: World, journal: Journal | None = None, new_id: Callable[[float], str] | None = None
) -> Ports:
    """Return the ports of a rotation in a simulated cluster; by default records are dropped."""
    numbers = count()
    return Ports(
        cluster=world.cluster,
        metrics=world.metrics,
        pauses=world.pauses,
        leadership=OnlyLeader(),
        store=world.store,
        actuator=world.actuator,
        journal=journal or NoJournal(),
        new_id=new_id or (lambda _: f"id-{next(numbers)}"),
        now=world.clock.now,
    )


def rotation_loop(world: World) -> RotationLoop:
    return RotationLoop(ports(world), world.policies, interval_seconds=CYCLE_SECONDS)


def rotation_memory(world: World, workload: WorkloadRef) -> RotationMemory:
    ledger = Ledger.from_data(world.store.read(workload).data)
    return RotationMemory.from_data(ledger.memory.get(BALANCER, {}))


@dataclass(frozen=True, slots=True)
class PlanStrategy:
    """The plan at one moment, held actions included: the hottest pods first, then the coldest."""

    pods: Sequence[str]
    hot: Sequence[str]
    predicted_percent: float


def plan_now(scene: Unbalanced, settings: Mapping[str, Any]) -> PlanStrategy | None:
    """Return what the production loop would decide, without doing it; None when nothing is hot."""
    world = scene.world
    enforce(world, settings)
    targets, _ = assign(world.policies.policies(), world.cluster.workloads())
    planner = CyclePlanner(ports(world), DEFAULTS, Isolation(), is_acting=False)
    _, ((_, planned),) = planner.plan_cycle(targets, world.now)
    assert not isinstance(planned, FailedTurn), planned
    # What is held was to follow what is not.
    actions = [*planned.decision.actions, *(held.action for held in planned.decision.held)]
    plan = planned.details.plan
    if not actions:
        return None
    assert plan is not None, "only a plan has actions"
    assert plan.improvement_percent is not None, "only an improvement is worth a rotation"
    return PlanStrategy([action.pod for action in actions], plan.hot, plan.improvement_percent)


DRAWS_PER_WORLD_MAX = 30
"""How many worlds may be drawn for one in which something is hot."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """How large the workload is, and how its policy is set."""

    pods: int = 6
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def policy(self) -> RotationPolicy:
        """The settings, checked."""
        return RotationPolicy.model_validate(self.settings)

    def world(self, cause: str, seed: int) -> Unbalanced:
        """Make a world whose pods can be judged."""
        policy = self.policy
        age_seconds = max(policy.candidate_age_min_seconds, policy.metrics_window_seconds) + 60
        return unbalanced(seed, cause, pods=self.pods, age_seconds=age_seconds)
