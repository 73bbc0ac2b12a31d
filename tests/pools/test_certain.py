"""A *no* is certain only on the server's word: every verb, every way to lose an answer, a real server."""

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools, connect
from equipoise.model.decision import MovePod, ResumePod, SuspendPod
from equipoise.model.errors import EquipoiseError
from equipoise.pools.scripts import WRITERS, source
from equipoise.ports import Unanswered
from tests.pools.serving import service
from tests.pools.wire import Wire, wire
from tests.pools.worlds import config, dump, write

Verb = Callable[[RedisPools], Any]
CONFIG = '{"tiers": {"gold": {"target": 2}, "basic": {"type": "shared", "target": 3}}, "default_chain": ["gold", "basic"]}'
TARGETS = {"gold": 1, "basic": 2}
VERSION = hashlib.sha1(json.dumps(config(**TARGETS)).encode(), usedforsecurity=False).hexdigest()
MOVE = [MovePod("a-0", "gold", "basic")]


def _world(client: Any) -> None:
    client.flushall()
    write(client, {"gold": ["a-0", "a-1"], "basic": ["a-2"]}, TARGETS)
    client.hset("voice:pod:a-0", "uid", "u1")


def _lost(client: Any) -> None:
    """A pod that nobody holds, seen so a lease ago."""
    client.srem("voice:pool:gold:available", "a-1")
    RedisPools(client, "voice").recover(["a-1"], 1)
    signature = client.hget("voice:suspects", "a-1").split()[1]
    client.hset("voice:suspects", "a-1", f"1 {signature}")


Before = Callable[[Any], object]
VERBS: dict[str, tuple[Before, Verb]] = {
    "allocate": (lambda _: None, lambda pools: pools.allocate("c1")),
    "release": (lambda c: RedisPools(c, "voice").allocate("c1"), lambda pools: pools.release("c1")),
    "heartbeat": (
        lambda c: RedisPools(c, "voice").allocate("c1") and c.delete("voice:lease:a-0", "voice:lease:a-1"),
        lambda pools: pools.heartbeat("c1"),
    ),
    "drain": (lambda _: None, lambda pools: pools.drain("a-0")),
    "undrain": (lambda c: RedisPools(c, "voice").drain("a-0"), lambda pools: pools.undrain("a-0")),
    "register": (lambda _: None, lambda pools: pools.register("a-9", "u9", 1)),
    "unregister": (lambda _: None, lambda pools: pools.unregister("a-0", "u1", 1)),
    "set_config": (lambda _: None, lambda pools: pools.set_config(CONFIG, VERSION)),
    "mend": (lambda c: c.set("voice:pod:tier:a-0", "basic"), lambda pools: pools.mend("a-0", 1)),
    "forget": (lambda c: c.set("voice:epoch", "inf"), lambda pools: pools.forget_odd_epoch()),
    "move": (lambda _: None, lambda pools: pools.move(MOVE, VERSION, 1)[0]),
    "recover": (_lost, lambda pools: pools.recover(["a-1"], 1)[0]),
    "suspend": (lambda _: None, lambda pools: pools.attend([SuspendPod("a-0", "u1")], 1)[0]),
    "resume": (
        lambda c: RedisPools(c, "voice").attend([SuspendPod("a-0", "u1")], 1),
        lambda pools: pools.attend([ResumePod("a-0", "u1")], 1)[0],
    ),
}
AFTERWARDS = {
    "refused": "refused",
    "silent": "silent",
    "loading": "LOADING",
    "a replica": "READONLY",
    "no password": "NOAUTH",
    "no rights": "NOPERM",
    "cluster down": "CLUSTERDOWN",
    "out of memory": "OOM",
    "a wrong type": "WRONGTYPE",
    "too few replicas": "NOREPLICAS",
}


@pytest.fixture
def line(url: str) -> Iterator[Wire]:
    with wire(url) as found:
        yield found


@pytest.fixture
def far(line: Wire, client: Any) -> Iterator[RedisPools]:
    """Our port, by the wire."""
    _world(client)
    for writer in WRITERS:
        client.script_load(source(writer))
    connected = RedisPools(connect(line.url, "voice", timeout_seconds=60.0), "voice", line.url)
    connected.policy()
    yield connected
    connected.close()


def _said(ask: Verb, pools: RedisPools) -> str:
    """Return the answer, in the three values: its code, `Unanswered`, or `no`."""
    try:
        return str(ask(pools).code.value)
    except Unanswered:
        return "Unanswered"
    except EquipoiseError as error:
        return f"no: {error}"


@pytest.mark.parametrize("after", sorted(set(AFTERWARDS) - {"silent"}))
@pytest.mark.parametrize("name", VERBS)
def test_what_was_done_is_never_denied(
    client: Any, line: Wire, far: RedisPools, name: str, after: str
) -> None:
    """The server has done it, its answer is lost, and whoever asks again is turned away."""
    before, ask = VERBS[name]
    _world(client)
    before(client)
    untouched = dump(client)
    line.lose("answer", AFTERWARDS[after])
    said = _said(ask, far)
    assert dump(client) != untouched, "it was done"
    assert said == "Unanswered"
