"""What the doctor says of ledgers and of samples, on a cluster and a Prometheus that play a part."""

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from equipoise.cli.checks import Check, examine
from equipoise.cli.session import ClusterRequest
from equipoise.core.errors import BadInput
from equipoise.runtime.metrics_source import PrometheusOptions
from tests.support.kubernetes.server import Asked, Player, Stage, playing
from tests.support.pools.servers import server as redis_server
from tests.support.prometheus.server import Model, Request, Response, failed, ok, serving
from tests.support.prometheus.usage import container
from tests.support.prometheus.worlds import NO_ENDPOINTS, answered, service

FRESH = "10 of 10 running pods have a fresh CPU sample (the oldest is N s old)"
WHOLE, HALF = (285, 20), (150, 11)
"""Samples that cover the window of five minutes, and samples of a half."""
OLD, YOUNG = 3600.0, 60.0


def _pod(name: str, age_seconds: float) -> dict[str, Any]:
    began = datetime.fromtimestamp(time.time() - age_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": began},
        "spec": {"containers": [{"name": "app"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


@contextmanager
def _cluster(
    pods: Sequence[dict[str, Any]],
    kinds: Sequence[str] = (),
    forbidden: Sequence[str] = (),
    services: Sequence[dict[str, Any]] = (),
    behind: Callable[[Request], Response] = lambda _: NO_ENDPOINTS,
) -> Iterator[Player]:
    """An API server with these pods and kinds of ours, where some verbs on ledgers are forbidden.

    Behind each of its Services is the same.
    """

    def play(asked: Asked, stage: Stage) -> None:
        if asked.path.endswith("/selfsubjectaccessreviews"):
            wanted = json.loads(asked.body)["spec"]["resourceAttributes"]
            is_forbidden = wanted["resource"] == "ledgers" and wanted["verb"] in forbidden
            stage.answer({"status": {"allowed": not is_forbidden}})
        elif asked.path == "/version":
            stage.answer({"gitVersion": "v1.35.0"})
        elif asked.path.endswith("/pods"):
            stage.answer({"metadata": {}, "items": pods})
        elif asked.path == "/apis/equipoise.dev/v1alpha1" and kinds:
            stage.answer({"resources": [{"name": kind} for kind in kinds]})
        elif asked.path.endswith(("/services", "/prometheuses")):
            answer = answered(asked.path, services)
            stage.answer(answer.body, answer.status)
        elif "/proxy/" in asked.path:
            answer = behind(Request(asked.method, asked.path, asked.query, asked.headers))
            stage.answer(answer.body, answer.status)
        elif asked.path == "/apis":
            stage.answer({"groups": []})
        else:
            stage.refuse(404, "NotFound")

    with playing(play) as player:
        yield player


def _prometheus(model: Model) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        if request.path.endswith("/buildinfo"):
            return ok({"version": "2.42.0", "revision": "abc"})
        if request.fields.get("query") == "time()":
            return ok({"resultType": "scalar", "result": [time.time(), str(time.time())]})
        return model(request)

    return answer


def _examined(player: Player, url: str | None, folder: Path, redis: str | None = None) -> dict[str, Check]:
    config = folder / "config"
    cluster = {"name": "c", "cluster": {"server": player.url}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    users = [{"name": "u", "user": {}}]
    config.write_text(
        json.dumps({"current-context": "c", "contexts": [context], "clusters": [cluster], "users": users})
    )
    request = ClusterRequest(str(config), namespace="shop", prometheus=PrometheusOptions(url=url))
    checks = examine(request, redis)
    return {check.name: check for check in checks}


def _told(check: Check) -> str:
    """Its sentence, however long the test took."""
    return re.sub(r"is \d+ s old", "is N s old", check.sentence)


@pytest.mark.parametrize(
    ("kinds", "forbidden", "status", "sentence", "remedy"),
    [
        (["ledgers"], [], "ok", "What is done can be remembered in namespace shop.", ""),
        (
            ["rotationpolicies"],
            [],
            "warn",
            "The kind Ledger is not installed, so `apply` holds everything; a plan does not need it.",
            "To act: equipoise crds apply.",
        ),
        (
            ["ledgers"],
            ["create", "update"],
            "warn",
            "May not create, update ledgers.equipoise.dev in namespace shop; a plan does not need it.",
            'To act: apiGroups: ["equipoise.dev"], resources: ["ledgers"], verbs: ["create", "update"].',
        ),
    ],
    ids=["all there", "no kind", "no right"],
)
def test_the_doctor_says_whether_apply_can_remember(
    kinds: list[str], forbidden: list[str], status: str, sentence: str, remedy: str, tmp_path: Path
) -> None:
    """Without a ledger `apply` holds everything, and the remedy is one line."""
    with _cluster([], kinds, forbidden) as player, serving(_prometheus(Model([]))) as server:
        found = _examined(player, server.url, tmp_path)["ledger"]
    assert (found.status, found.sentence, found.remedy) == (status, sentence, remedy)


@pytest.mark.parametrize(
    ("reach", "age_seconds", "status", "says"),
    [
        (WHOLE, OLD, "ok", f"{FRESH}."),
        (
            HALF,
            OLD,
            "warn",
            f"{FRESH}, but 10 of 10 have no samples over the whole window of 300 s.",
        ),
        (HALF, 200.0, "ok", f"{FRESH}."),
        (HALF, YOUNG, "warn", "10 pods run, for less than two minutes: too young to be measured."),
    ],
    ids=["whole", "a part", "younger than the window", "young"],
)
def test_the_doctor_tells_a_gap_from_pods_that_are_young(
    reach: tuple[int, int], age_seconds: float, status: str, says: str, tmp_path: Path
) -> None:
    """A window that is not covered is a line of its own; who can't have more samples yet has no fault."""
    names = [f"web-{i}" for i in range(10)]
    model = Model([(container("shop", name), 0.5) for name in names], time.time() - 5, reach)
    pods = [_pod(name, age_seconds) for name in names]
    with _cluster(pods) as player, serving(_prometheus(model)) as server:
        found = _examined(player, server.url, tmp_path)
    assert (found["prometheus"].status, _told(found["prometheus"])) == (status, says)
    assert bool(found["prometheus"].remedy) == (status != "ok")
    assert ("usage" in found) == (reach == HALF and age_seconds == OLD)


def test_the_doctor_counts_young_pods_beside_the_others(tmp_path: Path) -> None:
    """They are not among those that should have samples."""
    model = Model([(container("shop", "web-0"), 0.5)], time.time() - 5)
    with (
        _cluster([_pod("web-0", OLD), _pod("web-1", YOUNG)]) as player,
        serving(_prometheus(model)) as server,
    ):
        found = _examined(player, server.url, tmp_path)["prometheus"]
    assert (found.status, found.remedy) == ("ok", "")
    assert _told(found) == (
        "1 of 1 running pods have a fresh CPU sample (the oldest is N s old); 1 more is too young."
    )


def test_the_doctor_says_which_prometheus_is_used_and_why(tmp_path: Path) -> None:
    """What answers beside it, and what was seen elsewhere with the option that accepts it."""
    pods, model = [_pod("web-0", OLD)], Model([(container("shop", "web-0"), 0.5)], time.time() - 5)
    services = [service("monitoring", "prometheus"), service("monitoring", "thanos-query")]
    services.append(service("team-a", "prometheus"))
    with _cluster(pods, services=services, behind=_prometheus(model)) as player:
        found = _examined(player, None, tmp_path)
    assert found["prometheus-choice"] == Check(
        "prometheus-choice",
        "ok",
        "monitoring/prometheus:web is used: its name or its labels are those of a Prometheus; "
        "monitoring/thanos-query:web (Thanos query) answers too; "
        "found in other namespaces: team-a/prometheus (--prometheus-namespace team-a).",
    )
    assert found["prometheus-server"].status == found["prometheus"].status == "ok"


@pytest.mark.parametrize(
    ("place", "status", "sentence"),
    [
        (
            "monitoring",
            "fail",
            "It is unknown which Prometheus to use: monitoring/prometheus:web does not",
        ),
        (
            "team-a",
            "warn",
            "No Prometheus in namespace monitoring; found in other namespaces: team-a/prometheus (--prom",
        ),
    ],
)
def test_the_doctor_tells_a_prometheus_that_is_silent_from_one_elsewhere(
    place: str, status: str, sentence: str, tmp_path: Path
) -> None:
    """By its name, and with what to do."""
    with _cluster([_pod("web-0", OLD)], services=[service(place, "prometheus")]) as player:
        found = _examined(player, None, tmp_path)["prometheus"]
    assert (found.status, found.sentence[: len(sentence)]) == (status, sentence)
    assert "--prometheus-url" in found.sentence
    assert found.remedy


DOWN = "receive series from Addr: 10.0.0.7:10901: rpc error: code = Unavailable desc = connection refused"
"""What Thanos says of a store that is down: as a warning, or as the error of a query that asks for all."""
AS_WARNING: dict[str, Any] = {"warnings": [DOWN]}


@pytest.mark.parametrize("is_refused", [False, True], ids=["a warning", "a refusal"])
def test_the_doctor_tells_the_servers_own_words_of_a_part(is_refused: bool, tmp_path: Path) -> None:
    """A third of the pods has no sample since a store is down: nobody is sent to their kubelets for that."""
    model = Model([(container("shop", "web-0"), 0.5)], time.time() - 5, **AS_WARNING)

    def answer(request: Request) -> Response:
        if is_refused and "container" in request.fields.get("query", ""):
            return failed(422, "execution", f"expanding series: proxy Series(): {DOWN}")
        return _prometheus(model)(request)

    pods = [_pod(f"web-{i}", OLD) for i in range(2)]
    with _cluster(pods) as player, serving(answer) as server:
        found = _examined(player, server.url, tmp_path)["prometheus"]
    assert found.status == "fail"
    assert DOWN in found.sentence
    assert found.remedy.startswith("Start the store that it misses")


def test_the_doctor_looks_behind_a_thanos_first(tmp_path: Path) -> None:
    """Thanos forgets a store that is down within seconds, and then answers as if there had never been one."""
    model = Model([(container("shop", "web-0"), 0.5)], time.time() - 5)

    def answer(request: Request) -> Response:
        if request.path.endswith("/buildinfo"):
            return ok({"version": "0.42.4", "revision": "abc"})
        return _prometheus(model)(request)

    with _cluster([_pod(f"web-{i}", OLD) for i in range(2)]) as player, serving(answer) as server:
        found = _examined(player, server.url, tmp_path)["prometheus"]
    assert (found.status, found.remedy.partition(". ")[0]) == (
        "warn",
        "See whether every store behind Thanos is up",
    )


def test_the_doctor_says_how_a_redis_that_was_named_evicts_keys(tmp_path: Path) -> None:
    """A word of warning, or that all is well; a server that is away is a failure."""
    with (
        _cluster([]) as player,
        serving(_prometheus(Model([]))) as server,
        redis_server(settings=("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")) as url,
    ):
        found = _examined(player, server.url, tmp_path, url)["redis"]
        assert found.status == "warn"
        assert "maxmemory-policy is volatile-lru, maxmemory is 100.00M" in found.sentence
        assert "set maxmemory-policy to noeviction" in found.sentence
        with Redis.from_url(url) as person:
            person.config_set("maxmemory-policy", "noeviction")
        assert _examined(player, server.url, tmp_path, url)["redis"].status == "ok"
        gone = _examined(player, server.url, tmp_path, "unix:///no/redis.sock")["redis"]
        assert (gone.status, "not reachable" in gone.sentence) == ("fail", True)
        assert "redis" not in _examined(player, server.url, tmp_path)
        with pytest.raises(BadInput, match="--redis: expected redis://HOST:PORT"):
            _examined(player, server.url, tmp_path, "http://host")
