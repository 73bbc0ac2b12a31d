"""A Prometheus is looked for in named namespaces: nothing elsewhere changes the choice, or its failing."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Mapping
from typing import Any

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client as ApiClient
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target
from equipoise.adapters.prometheus import discover
from equipoise.adapters.prometheus.candidates import Candidate
from equipoise.adapters.prometheus.discover import find, look_elsewhere, still
from equipoise.adapters.prometheus.errors import Ambiguous, NotFound, PrometheusFailed, Undecided
from tests.support.prometheus.server import Request, Response, serving
from tests.support.prometheus.worlds import (
    FORBIDDEN,
    NO_ENDPOINTS,
    ONE,
    answered,
    cluster,
    listed,
    prometheus,
    service,
)

NAMED, UNNAMED = ("monitoring", "ops"), ("apps", "shop", "zoo")
FAMILIES = (
    "object",
    "prometheus",
    "thanos-query-frontend",
    "thanos-query",
    "vmsingle-a",
    "vmselect-a",
    "mimir-gateway",
)
"""One candidate of each kind, in the order of preference."""
HEALTH = {"healthy": ONE, "silent": NO_ENDPOINTS, "refuses": FORBIDDEN, "other": Response(200, b"<html>")}
Placed = Mapping[tuple[str, str], str]
"""The health of each candidate by namespace and kind."""
HINT = re.compile(
    r"; (found in other namespaces: [^;]*|none was found in other namespaces|other namespaces were not "
    r"searched: [^;]*)"
)


def placed(namespaces: tuple[str, ...]) -> st.SearchStrategy[Placed]:
    keys = st.tuples(st.sampled_from(namespaces), st.sampled_from(FAMILIES))
    return st.dictionaries(keys, st.sampled_from(sorted(HEALTH)), max_size=5)


class Api:
    """An API server with these candidates, in this process: what it was asked for is remembered."""

    address = "https://test:6443"

    def __init__(self, world: Placed, *, lists_everywhere: bool = True) -> None:
        self.asked: list[str] = []
        self._everywhere = None if lists_everywhere else FORBIDDEN
        self._objects = [prometheus(place, "k8s") for place, kind in world if kind == "object"]
        self._services, self._behind = [], {}
        for (place, kind), health in world.items():
            name = "prometheus-operated" if kind == "object" else kind
            self._services.append(service(place, name))
            self._behind[f"{place}/{name}:web"] = HEALTH[health]

    def get(self, path: str, params: Any = None, *, bytes_max: int = 0) -> bytes:
        answer = answered(path, self._services, self._objects, {}, self._everywhere)
        if answer.status != 200:
            raise ApiError(self.address, path, answer.status)
        return answer.body

    def request_raw(self, method: str, path: str, **_: Any) -> urllib3.BaseHTTPResponse:
        self.asked.append(path)
        answer = answered(path, behind=self._behind)
        return urllib3.HTTPResponse(
            io.BytesIO(answer.body), answer.headers, answer.status, preload_content=False
        )


def outcome(api: Any) -> tuple[Any, ...]:
    """Return what came of a search, but for what was seen elsewhere."""
    try:
        found = find(api, NAMED)
    except PrometheusFailed as error:
        return type(error), HINT.sub("", str(error))
    return found.candidate, found.how, found.others


@given(placed(NAMED), placed(UNNAMED), st.booleans())
def test_what_is_in_other_namespaces_changes_nothing_but_the_hint(
    named: Placed, unnamed: Placed, lists_everywhere: bool
) -> None:
    """Neither the choice nor its failing, whatever tenants make; and nothing of theirs is ever asked."""
    api = Api({**named, **unnamed}, lists_everywhere=lists_everywhere)
    assert outcome(api) == outcome(Api(named))
    assert {path.split("/")[4] for path in api.asked} <= {place for place, _ in named}


@given(placed(NAMED), st.data())
def test_had_the_silent_ones_answered_the_choice_would_be_the_same(
    named: Placed, data: st.DataObject
) -> None:
    """What does not answer is never passed over in favour of another kind or a lesser candidate."""
    unknown = {key: health for key, health in named.items() if health in {"silent", "refuses"}}
    later = {key: data.draw(st.sampled_from(["healthy", "silent", "other"])) for key in unknown}
    api = Api(named)
    before = outcome(api)
    match before[0]:
        case Candidate():
            assert outcome(Api({**named, **later}))[:2] == before[:2]
        case error if error is Undecided:
            assert any(f"use: {_address(*key)} " in before[1] for key in unknown)
        case error if error is NotFound:  # a Service before the pods of an object is not asked beside it
            asked = {tuple(path.split("/")[4:7:2]) for path in api.asked}
            assert not [key for key in unknown if tuple(_address(*key).split("/")) in asked]
        case error:
            assert error is Ambiguous


def _address(place: str, kind: str) -> str:
    return f"{place}/{'prometheus-operated' if kind == 'object' else kind}:web"


@given(placed(NAMED))
def test_the_preferred_of_those_that_answer_is_chosen(named: Placed) -> None:
    """Where all that is there answers: the first kind in the stated order, unless there are two of it."""
    named = dict.fromkeys(named, "healthy")
    kinds = sorted(FAMILIES.index(kind) for _, kind in named)
    api: Any = Api(named)
    if not kinds:
        with pytest.raises(NotFound):
            find(api, NAMED)
    elif kinds[:1] == kinds[1:2]:
        with pytest.raises(Ambiguous, match="--prometheus-namespace"):
            find(api, NAMED)
    else:
        service_name = find(api, NAMED).candidate.service
        assert service_name.replace("prometheus-operated", "object") == FAMILIES[kinds[0]]


def test_what_is_seen_elsewhere_is_told_with_the_option_that_accepts_it() -> None:
    """One Service of each namespace, the preferred kinds first, and none of them is asked."""
    made = [service("observability", "thanos-query"), service("observability", "mimir-gateway")]
    with cluster(made, behind={"observability/thanos-query:web": ONE}) as (api, server):
        with pytest.raises(NotFound) as caught:
            find(api)
        assert str(caught.value).startswith(
            "no Prometheus in namespace monitoring; found in other namespaces: observability/thanos-query "
            "(--prometheus-namespace observability); "
        )
        assert not any("proxy" in request.path for request in server.requests)
        assert find(api, ["observability"]).transport.service == "thanos-query"
    crowd = [service(f"tenant-{number}", "prometheus") for number in range(9)]
    with cluster(crowd + made) as (api, _):
        seen = str(look_elsewhere(api, ["monitoring"]))
        assert seen.startswith(
            "found in other namespaces: tenant-0/prometheus (--prometheus-namespace tenant-0), "
        )
        assert seen.endswith(" and 5 more")
    with (
        cluster(everywhere=FORBIDDEN) as (api, _),
        pytest.raises(NotFound, match="other namespaces were not searched: listing their Services is forbi"),
    ):
        find(api)


@pytest.mark.parametrize(
    "everywhere",
    [Response(500, b"boom"), Response(200, b"[]")],
    ids=["fails", "no list"],
)
def test_no_failure_of_other_namespaces_hides_what_was_found_out(everywhere: Response) -> None:
    """Whoever lives there may have made it: the choice is not asked of them, and the error stays the same."""
    made = [service("monitoring", "prometheus")]
    with cluster(made, behind={"monitoring/prometheus:web": ONE}, everywhere=everywhere) as (api, server):
        assert find(api).transport.service == "prometheus"
        assert not any(request.path == "/api/v1/services" for request in server.requests)
    with cluster(everywhere=everywhere) as (api, _), pytest.raises(NotFound) as caught:
        find(api)
    assert "other namespaces were not searched" in str(caught.value)


def test_an_object_elsewhere_that_cannot_be_read_hides_no_other() -> None:
    """One tenant's object can't keep what is seen of others out of the hint."""
    items = [{"metadata": 7}, service("zoo", "prometheus"), {"spec": {"ports": "none"}}]
    with cluster(everywhere=listed(items)) as (api, _):
        assert str(look_elsewhere(api, ["monitoring"])) == (
            "found in other namespaces: zoo/prometheus (--prometheus-namespace zoo)"
        )


def test_more_candidates_than_may_be_asked_are_a_question_for_a_person() -> None:
    """Nobody is asked, so that no number of Services makes the search long."""
    made = [service("monitoring", f"p{number}", {"app": "prometheus"}) for number in range(21)]
    with cluster(made) as (api, server):
        with pytest.raises(Ambiguous, match=r"21 Services in namespace monitoring .* at most 20 .*-url"):
            find(api)
        assert not any("proxy" in request.path for request in server.requests)


def test_the_search_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates that are silent are asked at once, and together no longer than the search may take."""
    monkeypatch.setattr(discover, "SEARCH_SECONDS", 0.5)
    made = [service("monitoring", f"p{number}", {"app": "prometheus"}) for number in range(20)]
    ended = threading.Event()

    def answer(request: Request) -> Response:
        if "proxy" in request.path:
            ended.wait(30)
        return listed(made if request.path.endswith("/services") else [])

    with serving(answer) as server:
        target = Target(Endpoint(server.url), Identity(), "default", "test")
        try:
            with pytest.raises(Undecided, match=r"does not answer .* and 15 more do not answer"):
                find(ApiClient(target, backoff=NO_RETRIES))
            # The others of the twenty waited for those that were asked at once.
            assert sum("proxy" in request.path for request in server.requests) < 20
        finally:
            ended.set()


def test_a_server_that_was_chosen_is_told_from_one_that_is_gone() -> None:
    """By its Service: silent is not gone, and another port or path of the same Service is followed."""
    port = [{"name": "http", "port": 9090}]
    with cluster([service("monitoring", "prometheus", ports=port)]) as (api, _):
        chosen = Candidate("monitoring", "prometheus", "web")
        assert still(api, chosen) == Candidate("monitoring", "prometheus", "http")
        assert still(api, Candidate("monitoring", "thanos-query", "web")) is None
    with cluster([service("monitoring", "renamed", {"app": "nothing"})]) as (api, _):
        assert still(api, Candidate("monitoring", "renamed", "web")) == Candidate(
            "monitoring", "renamed", "web"
        )


def test_nothing_found_says_where_it_was_looked_for() -> None:
    """And what those that were asked answered."""
    made = [service("monitoring", "prometheus")]
    with (
        cluster(made, behind={"monitoring/prometheus:web": Response(200, b"<html>")}) as (api, _),
        pytest.raises(NotFound) as caught,
    ):
        find(api, ["monitoring", "ops"])
    message = str(caught.value)
    assert message.startswith(
        "no Prometheus in namespaces monitoring, ops; none was found in other namespaces; "
    )
    assert "monitoring/prometheus:web is not a Prometheus" in message
    assert message.endswith("; set the address of one with --prometheus-url")
    assert "\n" not in message
