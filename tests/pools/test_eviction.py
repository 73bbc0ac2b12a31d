"""A Redis that removes the keys of live calls when its memory is full is asked for nothing."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from equipoise.adapters.redis.connect import connect, eviction_in, eviction_of
from equipoise.core.errors import SetUpWrong, WorldFailed
from equipoise.runtime.redis import EVICTION_SECONDS, RemotePools
from tests.support.cli.running import clean, command, equipoise
from tests.support.pools.clusters import cluster
from tests.support.pools.servers import server
from tests.support.pools.serving import Caller, later, service, until
from tests.support.pools.worlds import dump, write

LIMIT = 100 << 20
EVICTING = ("--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
FOUND = "maxmemory-policy is volatile-lru, maxmemory is 100.00M"
WANTED = "set maxmemory-policy to noeviction"
TIERS = {"gold": ["a-0"], "basic": ["a-1"]}


def _status(remote: RemotePools) -> Any:
    return remote.ask(lambda pools: pools.check_config())


@pytest.fixture(scope="module")
def evicting() -> Iterator[str]:
    """A Valkey with a limit of memory, which a test sets up as it likes."""
    with server(settings=EVICTING) as url:
        yield url


@pytest.fixture
def person(evicting: str) -> Iterator[Any]:
    """The hand that sets it up; it evicts, and has tiers."""
    with Redis.from_url(evicting, decode_responses=True) as client:
        client.flushall()
        client.config_set("maxmemory", "100mb")
        client.config_set("maxmemory-policy", "volatile-lru")
        write(client, TIERS)
        yield client


@pytest.mark.parametrize("policy", ["volatile", "allkeys"])
@pytest.mark.parametrize("order", ["lru", "lfu", "random", "ttl", "lrm"])
def test_every_policy_but_one_evicts_where_there_is_a_limit(policy: str, order: str) -> None:
    """Those that a later version brings too; without a limit none of them does."""
    name = f"{policy}-{order}"
    said = eviction_in({"maxmemory": LIMIT, "maxmemory_policy": name, "maxmemory_human": "100.00M"})
    assert f"maxmemory-policy is {name}, maxmemory is 100.00M" in said
    assert WANTED in said
    assert eviction_in({"maxmemory": 0, "maxmemory_policy": name}) == ""
    assert eviction_in({"maxmemory": "0", "maxmemory_policy": name}) == ""
    assert eviction_in({"maxmemory": LIMIT, "maxmemory_policy": "noeviction"}) == ""


def test_what_a_server_does_not_say_is_not_taken_for_fine() -> None:
    """A managed one may leave out a line."""
    assert "it is unknown whether Redis evicts keys (INFO memory has no maxmemory_policy)" in eviction_in(
        {"maxmemory": LIMIT}
    )
    assert "it is unknown" in eviction_in({})
    assert "volatile-lru" in eviction_in({"maxmemory_policy": "volatile-lru"})
    assert eviction_in({"maxmemory_policy": "noeviction"}) == ""


def test_a_server_that_evicts_is_refused_until_it_is_set_right(evicting: str, person: Any) -> None:
    """One sentence names the policy found and the one to set; who accepts it is served."""
    now = [0.0]
    remote = RemotePools(lambda: evicting, "voice", monotonic=lambda: now[0])
    with pytest.raises(SetUpWrong) as refused:
        _status(remote)
    assert FOUND in str(refused.value)
    assert f"{WANTED}, or accept the risk with --accept-eviction" in str(refused.value)
    accepting = RemotePools(lambda: evicting, "voice", accepts_eviction=True)
    assert accepting.ask(lambda pools: pools.allocate("c1")).pod == "a-0"
    person.config_set("maxmemory-policy", "noeviction")
    now[0] += 2.0
    assert remote.ask(lambda pools: pools.allocate("c2")).pod == "a-1"
    remote.close()
    accepting.close()


def test_a_setting_that_changes_while_it_serves_is_noticed(evicting: str, person: Any) -> None:
    """It is asked again now and then; after that nothing is written until it is right again."""
    now = [0.0]
    person.config_set("maxmemory-policy", "noeviction")
    remote = RemotePools(lambda: evicting, "voice", monotonic=lambda: now[0])
    assert remote.ask(lambda pools: pools.allocate("c1")).pod == "a-0"
    person.config_set("maxmemory-policy", "allkeys-lru")
    now[0] += EVICTION_SECONDS
    before = dump(person)
    for _ in range(3):
        with pytest.raises(SetUpWrong, match="maxmemory-policy is allkeys-lru"):
            remote.ask(lambda pools: pools.allocate("c2"))
        now[0] += 1.0
    assert dump(person) == before
    person.config_set("maxmemory", "0")
    now[0] += 1.0
    assert remote.ask(lambda pools: pools.allocate("c2")).pod == "a-1"
    remote.close()


@contextmanager
def _behind_one_name(folder: Path, *urls: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """A URL that leads to the first server, and from the call on to the second, as after a failover."""
    name = folder / "redis.sock"
    sockets = [url.removeprefix("unix://") for url in urls]
    name.symlink_to(sockets[0])

    def fail_over() -> None:
        name.unlink()
        name.symlink_to(sockets[1])
        with Redis.from_url(urls[0]) as first:
            first.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    yield f"unix://{name}", fail_over


def test_a_failover_to_a_server_that_evicts_gives_it_nothing_to_do(
    evicting: str, person: Any, tmp_path: Path
) -> None:
    """Even where the client connects anew by itself: what comes first on a connection is the question."""
    with (
        server() as sound,
        Redis.from_url(sound, decode_responses=True) as first,
        _behind_one_name(tmp_path, sound, evicting) as (url, fail_over),
    ):
        write(first, TIERS)
        remote = RemotePools(lambda: url, "voice", monotonic=later())
        assert remote.ask(lambda pools: pools.allocate("c1")).pod == "a-0"
        fail_over()
        before = dump(person)
        for _ in range(3):
            with pytest.raises(WorldFailed):
                remote.ask(lambda pools: pools.allocate("c2"))
        with pytest.raises(SetUpWrong, match="volatile-lru"):
            _status(remote)
        assert dump(person) == before
        remote.close()


def test_a_user_who_may_not_ask_is_told_what_to_allow(evicting: str, person: Any) -> None:
    """Not to know is not fine; a script that keeps the server busy is another matter."""
    person.config_set("maxmemory-policy", "noeviction")
    rights = "~voice:* +@read +@write +@scripting +@connection +time +info|server +info|cluster"
    person.execute_command("ACL", "SETUSER", "short", "reset", "on", ">s3cret", *rights.split())
    remote = RemotePools(lambda: evicting.replace("unix://", "unix://short:s3cret@"), "voice")
    with pytest.raises(SetUpWrong) as refused:
        _status(remote)
    assert "allow the command INFO (+info)" in str(refused.value)
    assert "s3cret" not in str(refused.value)
    person.execute_command("ACL", "DELUSER", "short")


def test_callers_hear_a_plain_no(evicting: str, person: Any) -> None:
    """503, with what to set; the readiness says it too, and heals by itself."""
    with service(evicting, monotonic=later()) as (caller, readiness):
        before = dump(person)
        with pytest.raises(SetUpWrong):
            readiness.check()
        answer = caller.ask("allocate", call="c1")
        assert (answer.status, answer.document["outcome"]) == (503, "no")
        assert FOUND in answer.document["sentence"]
        assert FOUND in caller.raw("GET", "/readyz")[1].decode()
        assert dump(person) == before
        person.config_set("maxmemory-policy", "noeviction")
        readiness.check()
        assert caller.raw("GET", "/readyz")[0] == 200
        person.config_set("maxmemory-policy", "volatile-ttl")
        for _ in range(int(EVICTION_SECONDS)):
            readiness.check()  # it does not end a service that has begun
        assert "volatile-ttl" in caller.raw("GET", "/readyz")[1].decode()


def test_the_command_ends_with_one_line_unless_it_is_accepted(evicting: str, person: Any) -> None:
    """Exit status 1; where it is accepted (here by the variable) it serves."""
    words = ["pools", "serve", "--redis", evicting, "--address", "127.0.0.1:0"]
    done = equipoise(*words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {evicting}: Redis evicts keys")
    assert FOUND in done.stderr
    accepted = clean({"EQUIPOISE_ACCEPT_EVICTION": "true"})
    with subprocess.Popen(command(*words), stderr=subprocess.PIPE, text=True, env=accepted) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        try:
            assert process.stderr is not None
            caller = Caller(json.loads(process.stderr.readline())["port"])
            until(lambda: caller.raw("GET", "/readyz")[0] == 200)
        finally:
            watchdog.cancel()
            process.kill()


def test_fsck_tells_it_beside_what_it_finds(evicting: str, person: Any) -> None:
    """It only reports: the pools are clean all the same."""
    done = equipoise("pools", "fsck", "--redis", evicting, "-o", "json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["clean"]) == (0, True)
    assert [note for note in document["notes"] if FOUND in note and WANTED in note]
    person.config_set("maxmemory-policy", "noeviction")
    assert json.loads(equipoise("pools", "fsck", "--redis", evicting, "-o", "json").stdout)["notes"] == []


def test_of_a_cluster_every_primary_is_asked() -> None:
    """Slots move: the one that evicts may hold the keys tomorrow."""
    with cluster() as url:
        client: Any = connect(url, "{voice}")
        assert eviction_of(client, url) == ""
        ports = [node.port for node in client.get_primaries()]
        own = client.get_node_from_key("{voice}:tier:config").port
        other = next(port for port in ports if port != own)
        client.close()
        with Redis(port=other, decode_responses=True) as person:
            person.config_set("maxmemory", "100mb")
            person.config_set("maxmemory-policy", "allkeys-random")
            remote = RemotePools(lambda: url, "{voice}", monotonic=later())
            with pytest.raises(SetUpWrong, match=f"the primary 127.0.0.1:{other}: Redis evicts keys"):
                _status(remote)
            person.config_set("maxmemory-policy", "noeviction")
            text = '{"gold": {"type": "exclusive", "target": 1}}'
            assert remote.ask(lambda pools: pools.set_config(text, "")).code == "Stored"
            remote.close()
