"""A *no* is certain only on the server's word: every verb, every way to lose an answer, a real server."""

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools, connect, scripts
from equipoise.adapters.redis.pools import DONE
from equipoise.adapters.redis.scripts import source
from equipoise.core.decision import MovePod, RegisterPod, ResumePod, SuspendPod, UnregisterPod
from equipoise.core.errors import EquipoiseError, WorldFailed
from equipoise.pools.policy import tiers_for_scripts
from equipoise.ports import Unanswered
from tests.support.cli.running import equipoise
from tests.support.pools.clusters import cluster
from tests.support.pools.redis_proxy import RedisProxy, proxy_to
from tests.support.pools.serving import service
from tests.support.pools.worlds import config, dump, write
from tests.testbed import wait_until

Prepare = Callable[[RedisPools, Any], object]
Verb = Callable[[RedisPools], Any]
TARGETS = {"gold": 1, "basic": 2}
OTHER = json.dumps(config(gold=2, basic=3))
VERSION = hashlib.sha1(json.dumps(config(**TARGETS)).encode(), usedforsecurity=False).hexdigest()
MOVE = [MovePod("a-0", "gold", "basic")]
SUSPEND, RESUME = [SuspendPod("a-0", "u1")], [ResumePod("a-0", "u1")]


def _as_it_is(pools: RedisPools, client: Any) -> None:
    del pools, client


def _unleased(pools: RedisPools, client: Any) -> None:
    pools.allocate("c1")
    client.delete("voice:lease:a-0", "voice:lease:a-1")


def _nobodys(pools: RedisPools, client: Any) -> None:
    """A pod that nobody holds, and that was seen so a lease ago."""
    client.srem("voice:pool:gold:available", "a-1")
    pools.recover(["a-1"], 1)
    client.hset("voice:suspects", "a-1", f"1 {client.hget('voice:suspects', 'a-1').split()[1]}")


VERBS: dict[str, tuple[Prepare, Verb, str]] = {
    "allocate": (_as_it_is, lambda pools: pools.allocate("c1"), "Allocated"),
    "release": (lambda pools, _: pools.allocate("c1"), lambda pools: pools.release("c1"), "UnknownCall"),
    "heartbeat": (_unleased, lambda pools: pools.heartbeat("c1"), "Renewed"),
    "drain": (_as_it_is, lambda pools: pools.drain("a-0"), "Drained"),
    "undrain": (lambda pools, _: pools.drain("a-0"), lambda pools: pools.undrain("a-0"), "NotDraining"),
    "register": (_as_it_is, lambda pools: pools.register("a-9", "u9", 1), "Known"),
    "replace": (_as_it_is, lambda pools: pools.register("a-0", "u2", 1), "Known"),
    "unregister": (_as_it_is, lambda pools: pools.unregister("a-0", "u1", 1), "NotThere"),
    "set_config": (_as_it_is, lambda pools: pools.set_config(OTHER, VERSION), "Stored"),
    "mend": (
        lambda _, client: client.set("voice:pod:tier:a-0", "basic"),
        lambda pools: pools.repair("a-0", 1),
        "Sound",
    ),
    "forget": (
        lambda _, client: client.set("voice:epoch", "inf"),
        lambda pools: pools.forget_odd_epoch(),
        "Sound",
    ),
    "move": (_as_it_is, lambda pools: pools.move(MOVE, VERSION, 1)[0], "AlreadyThere"),
    "recover": (_nobodys, lambda pools: pools.recover(["a-1"], 1)[0], "Healthy"),
    "suspend": (_as_it_is, lambda pools: pools.reconcile(SUSPEND, 1)[0], "Drained"),
    "resume": (
        lambda pools, _: pools.reconcile(SUSPEND, 1),
        lambda pools: pools.reconcile(RESUME, 1)[0],
        "NotDraining",
    ),
}
"""What must be so before, the verb, and what it says when it has been done already."""
REFUSALS = (
    *("LOADING", "READONLY", "NOAUTH", "NOPERM", "CLUSTERDOWN", "MASTERDOWN", "MISCONF", "OOM", "NOREPLICAS"),
    *("WRONGTYPE", "BUSY", "TRYAGAIN", "ERR max number of clients reached", "ERR unknown command 'EVALSHA',"),
)
"""Words of a server that has done nothing of what was asked."""
TURNED_AWAY = ("refused", *REFUSALS, "ERR")
OTHERS = (
    *("-ERR", "-ERR Connection timed out", "-upstream failure", "-MOVED nowhere", "-ERR MISCONF"),
    *("+OK", ":x", "HTTP/1.1 502 Bad Gateway"),
)
"""What somebody between us and the server says in its place, whatever the server does meanwhile."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "RETRY_SECONDS", 0.0, raising=False)


@pytest.fixture
def line(url: str) -> Iterator[RedisProxy]:
    with proxy_to(url) as found:
        yield found


def _world(client: Any, pools: RedisPools, prepare: Prepare = _as_it_is) -> dict[str, Any]:
    client.flushall()
    write(client, {"gold": ["a-0", "a-1"], "basic": ["a-2"]}, TARGETS)
    client.hset("voice:pod:a-0", "uid", "u1")
    for writer in (*DONE, "snapshot"):
        client.script_load(source(writer))
    prepare(pools, client)
    return dump(client)


def _far(line: RedisProxy) -> RedisPools:
    """Our port, by the wire; it knows the tiers already."""
    pools = RedisPools(
        connect(line.url, "voice", timeout_seconds=60.0), "voice", line.url, read_tiers=tiers_for_scripts
    )
    pools.snapshot()
    return pools


def _said(ask: Verb, pools: RedisPools) -> str:
    """Return the answer in three values: its code, `Unanswered`, or `no`."""
    try:
        code = str(ask(pools).code.value)
    except Unanswered:
        return "Unanswered"
    except EquipoiseError:
        return "no"
    return "no" if code in {"Failed", "WrongType"} else code


@pytest.mark.parametrize("name", VERBS)
def test_what_was_done_is_never_denied(client: Any, pools: RedisPools, url: str, name: str) -> None:
    """The server has done it, its answer is lost, and the second attempt is turned away, however."""
    prepare, ask, _ = VERBS[name]
    said = {}
    for then in TURNED_AWAY:
        untouched = _world(client, pools, prepare)
        with proxy_to(url) as line:
            far = _far(line)
            line.lose("answer", then)
            said[then] = _said(ask, far)
            far.close()
        assert dump(client) != untouched, f"{then}: it was done"
    assert said == dict.fromkeys(TURNED_AWAY, "Unanswered")


@pytest.mark.parametrize("name", VERBS)
def test_asked_again_every_verb_says_what_is_true(
    client: Any, pools: RedisPools, line: RedisProxy, name: str
) -> None:
    """Done once, whether the answer or the request was lost; and the second answer is a yes."""
    prepare, ask, again = VERBS[name]
    _world(client, pools, prepare)
    first = _said(ask, pools)
    done = dump(client)
    for lost, expected in (("answer", again), ("request", first)):
        _world(client, pools, prepare)
        far = _far(line)
        line.lose(lost)
        assert _said(ask, far) == expected, lost
        if name not in {"allocate", "heartbeat"}:  # which of two pods it gets is up to chance
            assert dump(client) == done, lost
        far.close()


@pytest.mark.parametrize("name", VERBS)
def test_what_was_never_sent_is_a_plain_no(
    client: Any, pools: RedisPools, line: RedisProxy, name: str
) -> None:
    """Refused before the first attempt, or turned away by the server's own word at both."""
    prepare, ask, _ = VERBS[name]
    for then in (*REFUSALS, "refused"):
        untouched = _world(client, pools, prepare)
        far = _far(line)
        if then == "refused":
            line.stop()
        else:
            line.refuse(then)
        assert _said(ask, far) == "no", then
        assert dump(client) == untouched, then
        line.refuse("")
        far.close()


@pytest.mark.parametrize("name", VERBS)
def test_what_others_say_in_the_place_of_the_server_proves_nothing(
    client: Any, pools: RedisPools, url: str, name: str
) -> None:
    """A proxy gives up while the server does it: its word is no answer of the server."""
    prepare, ask, _ = VERBS[name]
    said = {}
    for word in OTHERS:
        untouched = _world(client, pools, prepare)
        with proxy_to(url) as line:
            far = _far(line)
            line.lose("word", word)
            said[word] = _said(ask, far)
            far.close()
        assert dump(client) != untouched, f"{word}: it was done"
    assert said == dict.fromkeys(OTHERS, "Unanswered")


def test_a_no_to_the_second_attempt_is_none_for_the_first(
    client: Any, pools: RedisPools, line: RedisProxy
) -> None:
    """The first may still be done: a server that hung has it in its queue."""
    _world(client, pools)
    for call in range(7):
        pools.allocate(f"c{call}")
    far = _far(line)
    asked: tuple[Callable[[], object], ...] = (
        lambda: far.allocate("late"),
        lambda: far.release("c0", "a-9"),
        lambda: far.heartbeat("nobody's"),
        lambda: far.drain("nobody"),
        lambda: far.drain("a-0", "u9"),
        lambda: far.register("metadata", "u", 1),
        lambda: far.set_config(OTHER, VERSION, ["gold"]),
    )
    for ask in asked:
        line.lose("request")
        with pytest.raises(Unanswered, match="the outcome is unknown"):
            ask()
    moves = [MovePod("a-0", "gold", "basic"), MovePod("a-1", "gold", "basic")]
    line.lose("request")
    assert [answer.code.value for answer in far.move(moves, VERSION, 1)] == ["Unanswered", "Leased"]
    far.close()


def test_a_config_that_breaks_between_two_attempts_proves_nothing(
    client: Any, pools: RedisPools, line: RedisProxy
) -> None:
    """The call was given, and asked again with the new config, which makes no sense."""
    _world(client, pools)
    far = _far(line)
    line.lose("answer", on_lost=lambda: client.set("voice:tier:config", "{"))
    with pytest.raises(Unanswered, match="the outcome is unknown"):
        far.allocate("c1")
    assert client.exists("voice:call:c1")
    _world(client, pools)
    line.lose("answer", on_lost=lambda: client.set("voice:tier:config", "{"))
    came = far.reconcile([RegisterPod("a-9", "u9"), UnregisterPod("a-0", "u1")], 1)
    assert [answer.code.value for answer in came] == ["Unanswered", "Failed"]
    assert client.exists("voice:pod:tier:a-9"), "the first was done"
    assert client.exists("voice:pod:tier:a-0"), "the second was not sent"
    far.close()


def test_fsck_tells_what_it_has_mended_before_an_answer_was_lost(
    client: Any, pools: RedisPools, line: RedisProxy
) -> None:
    """The first is mended, of the second nobody knows, and the third is not asked for."""
    _world(client, pools)
    for pod, tier in (("a-0", "basic"), ("a-1", "basic"), ("a-2", "gold")):
        client.set(f"voice:pod:tier:{pod}", tier)
    line.lose("answer", "refused", skips=2)  # the look, and the first repair
    done = equipoise("pools", "fsck", "--repair", "--redis", line.url, "-o", "json")
    repairs = [(each["pod"], each["result"]) for each in json.loads(done.stdout)["repairs"]]
    assert (done.returncode, repairs) == (1, [("a-0", "Mended"), ("a-1", "Unanswered")])
    assert "the outcome is unknown" in done.stderr
    assert [client.get(f"voice:pod:tier:{pod}") for pod in ("a-0", "a-1", "a-2")] == ["gold", "gold", "gold"]


def test_over_http_an_answer_in_doubt_is_unknown_and_a_refusal_a_no(
    client: Any, pools: RedisPools, line: RedisProxy
) -> None:
    """503 in both cases; the outcome tells them apart."""
    _world(client, pools)
    with service(line.url) as (caller, _):
        assert caller.ask("allocate", call="c0").status == 200
        line.lose("answer", "refused")
        lost = caller.ask("allocate", call="c1")
        assert (lost.status, lost.document["outcome"]) == (503, "unknown")
        assert client.exists("voice:call:c1")
        away = caller.ask("allocate", call="c2")
        assert (away.status, away.document["outcome"]) == (503, "no")
        assert not client.exists("voice:call:c2")


def test_a_script_that_is_stopped_half_way_has_changed_something(
    client: Any, pools: RedisPools, url: str
) -> None:
    """By rights that end in its middle, which the manual warns of: what it wrote before is kept."""
    _world(client, pools)
    words = "reset on >s3cret ~voice:* +@read +@write +@scripting +@connection +info +time -sadd"
    client.execute_command("ACL", "SETUSER", "pools", *words.split())
    try:
        with connect(url.replace("unix://", "unix://pools:s3cret@"), "voice") as own:
            assert (
                _said(
                    lambda poor: poor.allocate("c1"),
                    RedisPools(own, "voice", url, read_tiers=tiers_for_scripts),
                )
                == "Unanswered"
            )
    finally:
        client.execute_command("ACL", "DELUSER", "pools")
    assert client.exists("voice:call:c1")


def test_a_replica_answers_nothing_for_its_primary(client: Any, pools: RedisPools) -> None:
    """It runs a script that writes nothing, and would say of calls what it last heard: all are refused."""
    for name, (prepare, ask, _) in VERBS.items():
        for is_done in (False, True):
            _world(client, pools, prepare)
            if is_done:
                _said(ask, pools)
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            try:
                assert _said(ask, pools) == "no", (name, is_done)
                with pytest.raises(WorldFailed, match="expected the primary, got a replica"):
                    pools.release("given-by-the-primary")
                assert pools.snapshot().pods, "it can be looked at"
            finally:
                client.execute_command("REPLICAOF", "NO", "ONE")


def test_a_node_of_a_cluster_that_dies_amid_a_request_leaves_it_in_doubt() -> None:
    """The other nodes refuse, and the client would tell of their refusal alone."""
    with cluster() as url:
        client: Any = connect(url, "{voice}")
        pools = RedisPools(client, "{voice}", url, read_tiers=tiers_for_scripts)
        assert pools.set_config('{"gold": 1}', "").code == "Stored"
        assert pools.register("a-0", "u", 1).code == "Registered"
        pools.release("nobody's")
        node = client.get_node_from_key("{voice}:tier:config").redis_connection
        node.execute_command("CLIENT", "PAUSE", "120000", "WRITE")
        said: list[str] = []
        asking = threading.Thread(target=lambda: said.append(_said(lambda p: p.release("c1"), pools)))
        asking.start()
        wait_until(lambda: node.info("clients")["blocked_clients"], "the request in the node's queue", 60)
        os.kill(node.info("server")["process_id"], signal.SIGKILL)
        asking.join(60)
        assert said == ["Unanswered"]
        others = [one.redis_connection for one in client.get_primaries() if one.redis_connection is not None]
        pools.close()
        assert not any(_open_connections(one) for one in others), "what is closed leaves no connection open"


def _open_connections(client: Any) -> int:
    """Count the sockets of a client's pool."""
    return sum(one._sock is not None for one in client.connection_pool._available_connections)
