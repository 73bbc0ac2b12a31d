"""The arithmetic of PodDisruptionBudgets: never more than any budget allows."""

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import Pdb, Pod, Requirement, Selector
from equipoise.core.ledger import Entry, Ledger
from equipoise.engine.disruption import DisruptionBudget, clear
from tests.support.kubernetes.samples import pod as raw_pod

_APPS = ("web", "api", "job")
_PLACES = ("shop", "yard")


def _pod(name: str, app: str = "web", namespace: str = "shop") -> Pod:
    import json

    from equipoise.adapters.kubernetes.decode import Decoder
    from equipoise.adapters.kubernetes.kinds import PODS

    made = PODS.decode(Decoder(), PODS.decode_object(json.dumps(raw_pod(name, namespace)).encode()))
    assert made is not None
    return msgspec.structs.replace(made, labels=(("app", app),))


def _pdb(
    name: str,
    app: str | None = "web",
    allowed: int = 1,
    *,
    namespace: str = "shop",
    is_current: bool = True,
    selects_nothing: bool = False,
) -> Pdb:
    terms = () if app is None else (Requirement("app", "In", (app,)),)
    selector = None if selects_nothing else Selector(terms)
    return Pdb(namespace, name, name, "1", selector, allowed, 5, 4, 5, is_current)


def _names(pods: tuple[Pod, ...]) -> list[str]:
    return [pod.name for pod in pods]


def test_the_first_go_as_far_as_the_budget_reaches() -> None:
    """In the order in which they are wanted."""
    cleared = clear([_pod("c"), _pod("a"), _pod("b")], [_pdb("web", allowed=2)])
    assert _names(cleared.may_go) == ["c", "a"]
    (waiting,) = cleared.waiting
    assert waiting.pod.name == "b"
    assert (
        waiting.sentence == "the PodDisruptionBudget web allows 2 evictions now, used by pods before this one"
    )


def test_a_budget_that_is_not_current_allows_none() -> None:
    """Its numbers are of another time."""
    cleared = clear([_pod("a")], [_pdb("web", allowed=3, is_current=False)])
    assert cleared.may_go == ()
    assert cleared.waiting[0].sentence == "Kubernetes has not processed the PodDisruptionBudget web yet"


def test_a_pod_under_several_budgets_waits_and_takes_nothing() -> None:
    """The server refuses it, whatever they allow; the next pod has its chance."""
    budgets = [_pdb("web", "web", 1), _pdb("all", None, 1)]
    cleared = clear([_pod("a"), _pod("b", "api"), _pod("c", "api")], budgets)
    assert _names(cleared.may_go) == ["b"]
    assert [waiting.pod.name for waiting in cleared.waiting] == ["a", "c"]
    assert "several PodDisruptionBudgets (web, all) select a" in cleared.waiting[0].sentence


def test_budgets_of_other_namespaces_and_without_selector_do_not_count() -> None:
    """No selector selects nothing, an empty one everything."""
    others = [_pdb("web", allowed=0, namespace="yard"), _pdb("none", allowed=0, selects_nothing=True)]
    assert _names(clear([_pod("a")], others).may_go) == ["a"]
    assert clear([_pod("a")], [_pdb("all", None, 0)]).may_go == ()
    assert (
        "allows no eviction now (5 healthy pods, 4 required)"
        in clear([_pod("a")], [_pdb("all", None, 0)]).waiting[0].sentence
    )
    alone = msgspec.structs.replace(_pdb("all", None, 0), pods_healthy=1, pods_desired=1)
    assert "(1 healthy pod, 1 required)" in clear([_pod("a")], [alone]).waiting[0].sentence


_PODS = {(app, place): _pod("p", app, place) for app in _APPS for place in _PLACES}
_pods = st.lists(st.tuples(st.sampled_from(_APPS), st.sampled_from(_PLACES)), max_size=12).map(
    lambda keys: [msgspec.structs.replace(_PODS[key], name=f"p{i}") for i, key in enumerate(keys)]
)
_budgets = st.lists(
    st.builds(
        lambda app, allowed, place, is_current, nothing: _pdb(
            "", app, allowed, namespace=place, is_current=is_current, selects_nothing=nothing
        ),
        st.sampled_from([*_APPS, None]),
        st.integers(-1, 4),
        st.sampled_from(_PLACES),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
    ),
    max_size=5,
).map(lambda found: [msgspec.structs.replace(pdb, name=f"b{i}") for i, pdb in enumerate(found)])


def _server(wanted: list[Pod], budgets: list[Pdb]) -> list[str]:
    """Evict one by one as the API server does, in as few words as possible."""
    left = {pdb.name: pdb.disruptions_allowed for pdb in budgets}
    gone = []
    for pod in wanted:
        mine = [
            pdb
            for pdb in budgets
            if pdb.namespace == pod.namespace
            and pdb.selector is not None
            and pdb.selector.matches(dict(pod.labels))
        ]
        if len(mine) > 1 or any(not pdb.is_current or left[pdb.name] <= 0 for pdb in mine):
            continue
        for pdb in mine:
            left[pdb.name] -= 1
        gone.append(pod.name)
    return gone


@given(_pods, _budgets)
def test_it_says_what_the_server_will_say(wanted: list[Pod], budgets: list[Pdb]) -> None:
    """For any pods and any budgets; every pod is in exactly one half, and the order stays."""
    cleared = clear(wanted, budgets)
    assert _names(cleared.may_go) == _server(wanted, budgets)
    waiting = [part.pod.name for part in cleared.waiting]
    assert sorted([*_names(cleared.may_go), *waiting]) == sorted(pod.name for pod in wanted)
    assert all(part.budgets and part.sentence for part in cleared.waiting)


@given(_pods, _budgets)
def test_no_budget_is_ever_overdrawn(wanted: list[Pod], budgets: list[Pdb]) -> None:
    """Not by one, not for a moment."""
    taken = Counter(
        pdb.name
        for pod in clear(wanted, budgets).may_go
        for pdb in budgets
        if pdb.namespace == pod.namespace
        and pdb.selector is not None
        and pdb.selector.matches(dict(pod.labels))
    )
    assert all(taken[pdb.name] <= max(0, pdb.disruptions_allowed) for pdb in budgets)


@given(_pods, _budgets)
def test_a_prefix_of_the_wish_is_a_prefix_of_the_answer(wanted: list[Pod], budgets: list[Pdb]) -> None:
    """Who comes later changes nothing for who came first."""
    whole = _names(clear(wanted, budgets).may_go)
    for end in range(len(wanted)):
        part = _names(clear(wanted[:end], budgets).may_go)
        assert whole[: len(part)] == part


def test_two_workloads_of_one_cycle_share_what_is_left() -> None:
    """What one takes is gone for the other, and asking takes nothing."""
    budget = DisruptionBudget(set(), 10, [_pdb("all", None, allowed=2)])
    wanted = [_pod("a"), _pod("b"), _pod("c")]
    assert _names(budget.clear(wanted).may_go) == _names(budget.clear(wanted).may_go) == ["a", "b"]
    budget.spend([_pod("a")])
    assert _names(budget.clear([_pod("x", "api"), _pod("y", "api")]).may_go) == ["x"]


def test_who_is_away_was_sent_away_or_is_missing_counts_as_disturbed() -> None:
    """Each pod once, whoever caused it."""
    pods = [msgspec.structs.replace(_pod(name), uid=name) for name in "abc"]
    sent = Entry("1", "1", "qos", "EvictPod", "b", "b", 60.0, 0)
    budget = DisruptionBudget({"a", "b", "elsewhere"}, 4, [])
    assert budget.disturbed(pods, 3, Ledger()) == 2
    assert budget.disturbed(pods, 5, Ledger(0, (sent,))) == 4
    assert budget.room(0, 5)[0] == 1  # three of the cluster's four are away
    budget.away.add("c")
    assert budget.room(0, 5)[0] == 0
