"""Joining the cluster with its metrics."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import (
    Container,
    Hpa,
    HpaMetric,
    Node,
    Owner,
    Pdb,
    Pod,
    Requirement,
    Selector,
    Workload,
    WorkloadRef,
)
from equipoise.core.decision import Action, Decision
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.reason import Code
from equipoise.engine.policies import pods_by_workload
from equipoise.ports import CpuUsage
from equipoise.rotation.policy import KafkaLag, RotationPolicy
from tests.support.rotation.tenants import plan_alone
from tests.support.rotation.worlds import UTILIZATION_70

NOW = 1_800_000_000.0
REF = WorkloadRef("apps/v1", "Deployment", "shop", "web")
SEED = dict(zip("abcdef", (1.2, 1.1, 0.8, 0.6, 0.4, 0.3), strict=True))


def _pod(name: str, **changes: Any) -> Pod:
    fields: dict[str, Any] = {
        "namespace": "shop",
        "name": name,
        "uid": f"uid-{name}",
        "resource_version": "1",
        "node": "n1",
        "phase": "Running",
        "is_ready": True,
        "ready_since": NOW - 4000,
        "created_at": NOW - 4000,
        "deletion_at": None,
        "owner": Owner("apps/v1", "ReplicaSet", "web-1", "rs-1"),
        "labels": (("app", "web"),),
        "annotations": (),
        "containers": (Container("app", 1.0),),
        "restarts": 0,
        "restarted_at": None,
        "priority": 0,
        "priority_class": "",
        "qos_class": "Burstable",
        "has_local_storage": False,
        "is_mirror": False,
        "is_disruption_target": False,
    }
    return Pod(**(fields | changes))


def _workload(ref: WorkloadRef = REF, app: str = "web") -> Workload:
    return Workload(ref, "u", "1", 6, 6, 6, 6, 1, 1, Selector((Requirement("app", "In", (app,)),)), ())


def _hpa(
    target: WorkloadRef = REF,
    metric: HpaMetric = UTILIZATION_70,
    name: str = "web",
) -> Hpa:
    return Hpa(target.namespace, name, "u", "1", target, 1, 10, 6, 6, None, (metric,), ())


class World:
    """A cluster and its metrics, in memory."""

    def __init__(self, pods: Sequence[Pod], hpas: Sequence[Hpa], workloads: Sequence[Workload]) -> None:
        self.all_pods, self.all_hpas, self.all_workloads = pods, hpas, workloads
        self.scaled: dict[WorkloadRef, Workload] = {}
        self.samples: dict[tuple[str, str], tuple[float, float]] = {}
        self.partial: set[str] = set()
        """Pods whose samples are of a part of the window only."""
        self.warned: tuple[str, ...] = ()
        """Why the source says that its answer is not whole."""
        self.lag: float | WorldFailed | None = None
        self.queries = 0

    def pods(self, namespace: str | None = None) -> Sequence[Pod]:
        return [pod for pod in self.all_pods if namespace in (None, pod.namespace)]

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        raise AssertionError(workload)

    def nodes(self) -> Sequence[Node]:
        return []

    def pdbs(self, namespace: str | None = None) -> Sequence[Pdb]:
        del namespace
        return []

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        return [each for each in self.all_workloads if namespace in (None, each.ref.namespace)]

    def workload(self, ref: WorkloadRef) -> Workload | None:
        return self.scaled.get(ref)

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        del namespace
        return {}

    def hpas(self, namespace: str | None = None) -> Sequence[Hpa]:
        return [hpa for hpa in self.all_hpas if namespace in (None, hpa.namespace)]

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        del at
        self.queries += 1
        asked = {(namespace, pod) for namespace, pods in pods_by_namespace.items() for pod in pods}
        rows = [
            (pod, container, *sample)
            for (pod, container), sample in self.samples.items()
            if ("shop", pod) in asked
        ]
        return CpuUsage(
            ["shop"] * len(rows),
            [row[0] for row in rows],
            [row[1] for row in rows],
            np.array([row[2] for row in rows], dtype=np.float64),
            np.array([row[3] for row in rows], dtype=np.float64),
            window_seconds,
            "test",
            is_covered=np.array([row[0] not in self.partial for row in rows], dtype=np.bool_),
            warnings=self.warned,
            partial=self.warned,
        )

    def scalar(self, query: str, at: float) -> float | None:
        del query, at
        if isinstance(self.lag, WorldFailed):
            raise self.lag
        return self.lag


def _seed_world(**changes: Any) -> World:
    world = World([_pod(name, **changes) for name in SEED], [_hpa()], [_workload()])
    world.samples = {(name, "app"): (cores, NOW - 15) for name, cores in SEED.items()}
    return world


def _plan(world: World, policy: RotationPolicy | None = None, names: Sequence[str] = ()) -> list[Any]:
    return plan_alone(policy or RotationPolicy(), world, world, NOW, "shop", names)


def _whole(decision: Decision) -> list[Action]:
    """The whole plan: the first wave, and those that wait for it."""
    return [*decision.actions, *(held.action for held in decision.held)]


def test_the_seeds_example_comes_out_of_the_join() -> None:
    """Pods, requests and samples meet; the evictions carry namespace and UID; one is the first wave."""
    (decision,) = _plan(_seed_world())
    assert [action.pod for action in decision.actions] == ["a"]
    assert {held.reason for held in decision.held} == {Code.HELD_BY_BUDGET}
    assert [(action.pod, action.uid) for action in _whole(decision)] == [
        ("a", "uid-a"),
        ("b", "uid-b"),
        ("f", "uid-f"),
        ("e", "uid-e"),
    ]
    assert decision.subject == "shop/web"


def test_an_old_sample_is_no_sample() -> None:
    """Two minutes without a scrape: unknown."""
    world = _seed_world()
    world.samples |= {("c", "app"): (0.8, NOW - 121)}
    (decision,) = _plan(world)
    assert decision.reason.code is Code.METRICS_INCOMPLETE
    assert decision.reason.numbers["pods_unknown"] == 1


def test_nothing_is_decided_from_a_part_of_the_usage() -> None:
    """All six pods are there and one is hot; but the source says that it could not give all that it has."""
    world = _seed_world()
    world.warned = ("store 10.0.0.7:10901 is down",)
    told: list[str] = []
    (decision,) = plan_alone(RotationPolicy(), world, world, NOW, "shop", warn=told.append)
    assert (decision.reason.code, decision.actions, decision.held) == (Code.METRICS_INCOMPLETE, (), ())
    assert decision.reason.sentence == (
        "The source of the CPU usage returned incomplete data (store 10.0.0.7:10901 is down), "
        "so nothing is decided."
    )
    assert told == ["test: store 10.0.0.7:10901 is down"]


@pytest.mark.parametrize("cores", [1e300, float("nan"), float("inf")])
def test_what_nothing_can_use_is_no_sample(cores: float) -> None:
    """A source that answers nonsense for two pods: unknown, and no sum leaves the numbers."""
    world = _seed_world()
    world.samples |= {("a", "app"): (cores, NOW), ("b", "app"): (cores, NOW)}
    (decision,) = _plan(world)
    assert (decision.reason.code, decision.actions) == (Code.METRICS_INCOMPLETE, ())
    assert decision.reason.numbers["pods_unknown"] == 2


@pytest.mark.parametrize("name", list(SEED))
def test_a_pod_that_was_measured_for_a_part_of_the_window_is_unknown(name: str) -> None:
    """Its rate is too low: hot or cold, nobody is judged by it, and the decision says how many there are."""
    world = _seed_world()
    world.partial = {name}
    (decision,) = _plan(world)
    assert (decision.reason.code, decision.actions) == (Code.METRICS_INCOMPLETE, ())
    assert decision.reason.numbers["pods_unknown"] == 1
    assert decision.reason.sentence == (
        "5 of 6 ready pods (83%) have fresh CPU samples for the entire metrics window; at least 90% are "
        "required."
    )


@pytest.mark.parametrize(
    ("age", "code"),
    [(299.0, Code.NO_HOT_PODS), (300.0, Code.METRICS_INCOMPLETE)],
    ids=["young", "old enough"],
)
def test_a_pod_that_is_younger_than_the_window_can_have_no_more_samples(age: float, code: Code) -> None:
    """It is known, and no candidate yet; from the window's age on it is expected to cover it."""
    world = _seed_world(created_at=NOW - age)
    world.partial = set(SEED)
    (decision,) = _plan(world)
    assert (decision.reason.code, decision.actions) == (code, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"phase": "Pending"},
        {"deletion_at": NOW},
        {"is_ready": False},
        {"created_at": NOW - 30},
        {"restarted_at": NOW - 5},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_pods_that_say_nothing_are_never_evicted(changes: dict[str, Any]) -> None:
    """Pending, terminating, unready, young or restarted."""
    (decision,) = _plan(_seed_world(**changes))
    assert decision.actions == ()


def test_a_pod_is_the_sum_of_its_containers() -> None:
    """A sidecar counts, as the HPA counts it; one without a sample makes the pod unknown."""
    world = _seed_world(containers=(Container("app", 0.75), Container("side", 0.25)))
    for name, cores in SEED.items():
        world.samples[name, "app"] = (cores / 2, NOW)
        world.samples[name, "side"] = (cores / 2, NOW)
    (decision,) = _plan(world)
    assert [action.pod for action in _whole(decision)] == ["a", "b", "f", "e"]
    for name in SEED:
        del world.samples[name, "side"]
    (decision,) = _plan(world)
    assert decision.reason.code is Code.METRICS_INCOMPLETE


def test_a_container_target_looks_at_that_container_only() -> None:
    """The sidecar's usage and request play no part."""
    world = _seed_world(containers=(Container("app", 1.0), Container("side", None)))
    world.all_hpas = [_hpa(metric=HpaMetric("ContainerResource", "cpu", "Utilization", 70, "app"))]
    world.samples |= {(name, "side"): (50.0, NOW) for name in SEED}
    (decision,) = _plan(world)
    assert [action.pod for action in _whole(decision)] == ["a", "b", "f", "e"]


def test_a_workload_of_another_kind_is_read_through_its_scale() -> None:
    """What an HPA names but no list shows is asked for by itself."""
    rollout = WorkloadRef("argoproj.io/v1alpha1", "Rollout", "shop", "web")
    world = _seed_world()
    world.all_workloads, world.all_hpas = [], [_hpa(rollout)]
    world.scaled = {rollout: _workload(rollout)}
    for names in ([], ["web"], ["rollout/web"]):
        (decision,) = _plan(world, names=names)
        assert len(_whole(decision)) == 4


def test_an_old_version_of_a_built_in_group_names_the_same_workload() -> None:
    """`apps/v1beta2` is `apps/v1` to whoever looks for the Deployment."""
    world = _seed_world()
    world.all_hpas = [_hpa(REF._replace(api_version="apps/v1beta2"))]
    (decision,) = _plan(world)
    assert decision.reason.code is Code.ROTATE


def test_a_named_workload_without_an_hpa_says_so_and_an_unnamed_one_is_left_out() -> None:
    """Asked for by name, every workload gets an answer."""
    world = _seed_world()
    world.all_hpas = []
    assert _plan(world) == []
    (decision,) = _plan(world, names=["web"])
    assert decision.reason.code is Code.NO_HPA


def test_a_name_picks_by_kind_when_it_says_one() -> None:
    """`deployment/web`, in kubectl's spellings."""
    for name in ("web", "deployment/web", "deploy/web", "Deployments/web", "deployment.apps/web"):
        assert len(_plan(_seed_world(), names=[name])) == 1
    with pytest.raises(WorldFailed, match=r"statefulset/web: not found in namespace shop"):
        _plan(_seed_world(), names=["statefulset/web"])


@pytest.mark.parametrize("name", ["", "a/b/c", "/web", "deploy/"])
def test_a_name_that_is_none_is_bad_input(name: str) -> None:
    """The message shows the form."""
    with pytest.raises(BadInput, match="expected NAME or KIND/NAME"):
        _plan(_seed_world(), names=[name])


@pytest.mark.parametrize(
    ("lag", "is_held"), [(999.0, False), (1000.0, True), (None, True), (WorldFailed("gone"), True)]
)
def test_the_lag_gate_holds_at_the_threshold_and_when_the_lag_is_unknown(
    lag: float | WorldFailed | None, is_held: bool
) -> None:
    """At or above holds; unknown holds; below lets go."""
    world = _seed_world()
    world.lag = lag
    policy = RotationPolicy(kafka_lag=KafkaLag(is_enabled=True, query="sum(lag)"))
    (decision,) = _plan(world, policy)
    assert len(decision.held) == (4 if is_held else 3)
    assert bool(decision.actions) is not is_held
    assert (decision.reason.code is Code.HELD_BY_LAG) is is_held


def test_queries_do_not_grow_with_workloads() -> None:
    """A hundred workloads are one question."""
    refs = [REF._replace(name=f"web-{number}") for number in range(100)]
    world = World(
        [_pod(f"{ref.name}-x", labels=(("app", ref.name),)) for ref in refs],
        [_hpa(ref) for ref in refs],
        [_workload(ref, ref.name) for ref in refs],
    )
    assert len(_plan(world)) == 100
    assert world.queries == 1


_LABEL_SETS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
_TERMS = st.builds(
    Requirement,
    st.sampled_from("abc"),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from("xyz"), min_size=1, max_size=2, unique=True).map(tuple),
)


@given(st.lists(_LABEL_SETS, max_size=8), st.lists(st.lists(_TERMS, max_size=3), max_size=4))
def test_the_index_finds_what_asking_every_pod_finds(
    label_sets: list[dict[str, str]], selectors: list[list[Requirement]]
) -> None:
    """The quick way and the plain way agree; an empty selector picks nothing."""
    pods = [_pod(f"p{n}", labels=tuple(sorted(labels.items()))) for n, labels in enumerate(label_sets)]
    workloads = [
        msgspec.structs.replace(_workload(REF._replace(name=f"w{n}")), selector=Selector(tuple(terms)))
        for n, terms in enumerate(selectors)
    ]
    found = pods_by_workload(workloads, [*pods, _pod("other", namespace="else", labels=(("a", "x"),))])
    for workload, terms in zip(workloads, selectors, strict=True):
        expected = [pod.name for pod in pods if terms and workload.selector.matches(dict(pod.labels))]
        assert sorted(pod.name for pod in found[workload.ref]) == sorted(expected)


def test_a_stateful_set_is_held_unless_somebody_opted_in() -> None:
    """The same identity would come back with the same share of the load."""
    world = _seed_world()
    ref = REF._replace(kind="StatefulSet")
    world.all_workloads, world.all_hpas = [_workload(ref)], [_hpa(ref)]
    (decision,) = _plan(world)
    assert (decision.reason.code, len(decision.held)) == (Code.OPTED_OUT, 4)
    (decision,) = _plan(world, RotationPolicy(includes_stateful_sets=True))
    assert decision.reason.code is Code.ROTATE
