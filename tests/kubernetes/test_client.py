"""A session: what is tried again, what is not, and how refusals and nonsense are told."""

from __future__ import annotations

import json

import pytest

from equipoise import __version__
from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import ApiError, Client, Unreachable
from equipoise.adapters.kubernetes.errors import BadAnswer
from equipoise.adapters.kubernetes.objects import Discovery, path_of
from equipoise.core.errors import BadInput
from tests.support.kubernetes.server import Asked, Script, Stage, Time, deaf_port, playing, session, target_of

HTML = b"<html><head><title>Sign in\nplease</title></head><body>" + b"x" * 10_000 + b"</body></html>"


def failing(times: int, status: int, **headers: str) -> Script:
    """Refuse so many times, then answer."""
    left = [times]

    def script(asked: Asked, stage: Stage) -> None:
        if left[0] > 0:
            left[0] -= 1
            stage.refuse(status, "Reason", "message", **headers)
        else:
            stage.answer({"ok": True})

    return script


def cutting(times: int) -> Script:
    """Drop the connection so many times, then answer."""
    left = [times]

    def script(asked: Asked, stage: Stage) -> None:
        if left[0] > 0:
            left[0] -= 1
            stage.cut()
        else:
            stage.answer({"ok": True})

    return script


TRIED_AGAIN: list[tuple[str, Script, int]] = [
    ("GET", failing(2, 500), 3),
    ("GET", failing(1, 429), 2),
    ("GET", failing(1, 503, Retry_After="7"), 2),
    ("GET", failing(1, 504), 2),
    ("GET", cutting(2), 3),
    ("PUT", cutting(1), 2),
    ("DELETE", failing(1, 502), 2),
    ("POST", failing(1, 429, Retry_After="1"), 2),
    ("POST", failing(1, 503, Retry_After="1"), 2),
    ("PATCH", failing(1, 429, Retry_After="1"), 2),
]
NOT_TRIED_AGAIN: list[tuple[str, Script]] = [
    *[("GET", failing(1, status)) for status in (400, 401, 403, 404, 405, 409, 410, 422, 501)],
    ("POST", failing(1, 500)),
    ("POST", failing(1, 429)),
    ("POST", failing(1, 500, Retry_After="1")),
    ("POST", cutting(1)),
    ("PATCH", cutting(1)),
]


@pytest.mark.parametrize(("method", "script", "requests"), TRIED_AGAIN)
def test_a_passing_failure_is_tried_again(method: str, script: Script, requests: int) -> None:
    """Where the same request can do no harm, or the server asked for it."""
    with playing(script) as player, session(player.url) as client:
        assert json.loads(client.request(method, "/x")) == {"ok": True}
    assert len(player.asked) == requests


@pytest.mark.parametrize(("method", "script"), NOT_TRIED_AGAIN)
def test_a_lasting_or_unsafe_failure_is_told_at_once(method: str, script: Script) -> None:
    """Other 4xx stay as they are, and a POST may have had its effect."""
    time = Time()
    with (
        playing(script) as player,
        session(player.url, world=time.world()) as client,
        pytest.raises((ApiError, Unreachable)),
    ):
        client.request(method, "/x")
    assert (len(player.asked), time.slept) == (1, [])


def test_retry_after_is_honoured_and_bounded() -> None:
    """Its seconds are slept, with a little jitter, and one cannot be made to wait for ever."""
    time = Time()
    with (
        playing(failing(1, 503, Retry_After="7")) as player,
        session(player.url, world=time.world(0.0)) as client,
    ):
        client.get("/x")
    assert time.slept == [7.0]
    with (
        playing(failing(99, 503, Retry_After="86400")) as player,
        session(player.url, world=Time().world()) as client,
    ):
        with pytest.raises(ApiError) as caught:
            client.get("/x")
        assert caught.value.retry_after_seconds == 86400


def test_an_eviction_is_not_tried_again_blindly() -> None:
    """`retry=False` hands a 429 to the caller, with its causes."""

    def script(asked: Asked, stage: Stage) -> None:
        body = {
            "kind": "Status",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "reason": "TooManyRequests",
            "code": 429,
            "details": {"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 10},
        }
        stage.answer(body, 429, {"Retry-After": "10"})

    with playing(script) as player, session(player.url) as client, pytest.raises(ApiError) as caught:
        client.post("/api/v1/namespaces/a/pods/b/eviction", {}, retry=False)
    assert len(player.asked) == 1
    assert (caught.value.status, caught.value.causes[0].reason) == (429, "DisruptionBudget")
    assert caught.value.retry_after_seconds == 10


def test_a_connection_that_never_was_is_tried_again_even_for_a_post() -> None:
    """Nothing can have happened."""
    time = Time()
    with deaf_port() as port:
        url = f"http://127.0.0.1:{port}"
        with (
            session(url, world=time.world(), backoff=Backoff(attempts_max=3)) as client,
            pytest.raises(Unreachable, match=f"cannot reach {url}: connection refused"),
        ):
            client.post("/x", {})
    assert len(time.slept) == 2


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (403, b'{"kind":"Status","reason":"Forbidden","message":"no\\nway"}', "403 Forbidden: no way"),
        (502, HTML, "502 Bad Gateway: an HTML page titled 'Sign in please' (a proxy or a login page?)"),
        (
            400,
            b"Client sent an HTTP request to an HTTPS server.\n",
            "400 Bad Request: Client sent an HTTP request",
        ),
        (500, b'{"kind":"Status","mess', '500 Internal Server Error: {"kind":"Status","mess'),
        (404, b"", "404 Not Found"),
        (418, b"\x00\xff\x1b[31m", "418 I'm a Teapot"),
        (599, b"?", "599 unknown status: ?"),
        (500, b'{"kind":"Status","message":7}', "500 Internal Server Error"),
        (500, b"[" * 5000, "500 Internal Server Error"),
    ],
)
def test_any_error_body_becomes_one_line(status: int, body: bytes, message: str) -> None:
    """A Status, HTML, text, half of a JSON, nothing, noise."""
    with (
        playing(lambda _, stage: stage.answer(body, status)) as player,
        session(player.url, backoff=Backoff(attempts_max=1)) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.get("/api")
    said = str(caught.value)
    assert said.startswith(f"{player.url} refused GET /api: {message}")
    assert said.isprintable()
    assert len(said) < 700


def endless(asked: Asked, stage: Stage, status: int) -> None:
    stage.send_response(status)
    stage.send_header("Transfer-Encoding", "chunked")
    stage.end_headers()
    while not stage.server.closing.is_set():
        stage.chunk(b"x" * 65536)


@pytest.mark.parametrize(("status", "kind"), [(200, BadAnswer), (403, ApiError)])
def test_an_endless_answer_is_cut_short(status: int, kind: type[Exception]) -> None:
    """Neither an object nor an error may fill our memory."""
    with (
        playing(lambda asked, stage: endless(asked, stage, status)) as player,
        session(player.url) as client,
        pytest.raises(kind) as caught,
    ):
        client.get("/x", bytes_max=1_000_000)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (HTML, "an HTML page titled 'Sign in please'"),
        (b'{"gitVersion": "v1', "truncated"),
        (b'{"gitVersion": 7}', "gitVersion: expected text, got a number"),
        (b"\xff\xfe", "malformed"),
    ],
)
def test_a_good_status_with_a_bad_body_is_told(body: bytes, why: str) -> None:
    """A login page, half a JSON, other types."""
    with (
        playing(lambda _, stage: stage.answer(body)) as player,
        session(player.url) as client,
        pytest.raises(BadAnswer, match=why) as caught,
    ):
        client.server_version()
    assert "\n" not in str(caught.value)


def test_a_redirect_is_not_followed() -> None:
    """The token stays with the server it is for."""
    with (
        playing(lambda _, stage: stage.answer(b"", 302, {"Location": "https://evil.test/"})) as player,
        session(player.url, token="secret") as client,
        pytest.raises(ApiError, match=r"302 Found: it points to https://evil\.test/, which is not followed"),
    ):
        client.get("/x")


def test_a_request_carries_who_we_are() -> None:
    """User agent, token, impersonated groups one by one, content type only with a body."""
    groups = (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    with (
        playing(lambda _, stage: stage.answer({})) as player,
        session(player.url, token="t", impersonation=groups) as client,
    ):
        client.get("/x", {"limit": 5})
        client.patch("/x", {"a": 1})
    first, second = player.asked
    assert first.headers["User-Agent"] == f"equipoise/{__version__}"
    assert first.headers["Authorization"] == "Bearer t"
    assert [value for name, value in first.raw_headers if name == "Impersonate-Group"] == ["a", "b"]
    assert first.query == {"limit": "5"}
    assert "Content-Type" not in first.headers
    assert (second.headers["Content-Type"], second.body) == ("application/merge-patch+json", b'{"a":1}')


def test_a_server_below_a_path_is_asked_there() -> None:
    """As behind Rancher."""
    with playing(lambda _, stage: stage.answer({"gitVersion": "v1"})) as player:
        client = Client(target_of(f"{player.url}/k8s/clusters/c-1"))
        client.server_version()
        client.close()
    assert player.asked[0].path == "/k8s/clusters/c-1/version"


def test_the_servers_clock_is_compared_with_ours() -> None:
    """From the Date of its last answer."""
    time = Time(now=1_700_000_000.0)

    def script(asked: Asked, stage: Stage) -> None:
        stage.date_time_string = lambda timestamp=None: "Tue, 14 Nov 2023 22:14:00 GMT"  # type: ignore[method-assign]
        stage.answer({})

    with playing(script) as player, session(player.url, world=time.world()) as client:
        assert client.clock_ahead_seconds is None
        client.get("/x")
        assert client.clock_ahead_seconds == 40.0


def test_rights_are_asked_of_the_server() -> None:
    """A SelfSubjectAccessReview, tried again like any read."""
    refused = [1]

    def script(asked: Asked, stage: Stage) -> None:
        if refused:
            refused.pop()
            stage.refuse(500)
        else:
            attributes = json.loads(asked.body)["spec"]["resourceAttributes"]
            stage.answer({"status": {"allowed": attributes["verb"] == "create"}})

    with playing(script) as player, session(player.url) as client:
        assert client.can_i("create", "", "pods", "shop", "eviction")
        assert not client.can_i("delete", "apps", "deployments")
    assert json.loads(player.asked[1].body)["spec"]["resourceAttributes"] == {
        "verb": "create",
        "group": "",
        "resource": "pods",
        "subresource": "eviction",
        "namespace": "shop",
    }


def test_the_service_proxy_carries_foreign_requests() -> None:
    """Any status comes back as it is, with a form as the body."""

    def script(asked: Asked, stage: Stage) -> None:
        stage.answer(b"bad query", 422)

    path = "/api/v1/namespaces/monitoring/services/https:prometheus:web/proxy/api/v1/query"
    with playing(script) as player, session(player.url) as client:
        response = client.request_raw("POST", path, fields={"query": "up{a='b'}"})
        assert (response.status, response.data) == (422, b"bad query")
        streamed = client.request_raw("GET", path, params={"query": "up"}, preload=False)
        assert streamed.read() == b"bad query"
        streamed.release_conn()
    assert player.asked[0].body == b"query=up%7Ba%3D%27b%27%7D"
    assert player.asked[0].headers["Content-Type"] == "application/x-www-form-urlencoded"


def discovering(asked: Asked, stage: Stage) -> None:
    if asked.path != "/apis/argoproj.io/v1alpha1":
        stage.refuse(404, "NotFound")
        return
    entries = [
        {"name": "rollouts", "kind": "Rollout", "namespaced": True},
        {"name": "rollouts/scale", "kind": "Scale", "namespaced": True},
        {"name": "analyses", "kind": "Analysis", "namespaced": True},
    ]
    stage.answer({"kind": "APIResourceList", "resources": entries})


def test_kinds_are_discovered_once() -> None:
    """What is known stays known; what is missing is asked for again after a while."""
    time = Time()
    with playing(discovering) as player, session(player.url, world=time.world()) as client:
        discovery = Discovery(client)
        for _ in range(3):
            found = discovery.find("argoproj.io/v1alpha1", "Rollout")
            assert found is not None
            assert (found.plural, found.is_namespaced, found.has_scale) == ("rollouts", True, True)
        assert discovery.find("none.io/v1", "X") is None
        assert discovery.find("none.io/v1", "X") is None
        assert len(player.asked) == 2
        time.now += 30
        assert discovery.find("none.io/v1", "X") is None
        assert len(player.asked) == 3


def test_a_dripping_answer_has_a_deadline() -> None:
    """Every byte restarts a socket's timeout, so the whole answer has one of its own."""
    time = Time()

    def script(asked: Asked, stage: Stage) -> None:
        stage.begin()
        while not stage.server.closing.is_set():
            stage.chunk(b" ")
            time.now += 10

    with (
        playing(script) as player,
        session(player.url, world=time.world(), backoff=Backoff(attempts_max=1)) as client,
        pytest.raises(Unreachable, match="no answer in time"),
    ):
        client.get("/x")


@pytest.mark.parametrize(
    ("namespace", "names"), [(None, ("",)), ("shop", ("..",)), ("..", ()), ("a", ("b", ""))]
)
def test_no_name_makes_the_path_of_something_else(namespace: str | None, names: tuple[str, ...]) -> None:
    """An empty one would be the path of all objects of a kind; with DELETE, that removes them all."""
    with pytest.raises(BadInput, match=r"pods: expected a name, got '.*'"):
        path_of("", "v1", "pods", namespace, *names)
