"""`equipoise journal`, as people and scripts use it."""

import json
import sys
from pathlib import Path

import msgspec
import pytest
import yaml

from equipoise.cli import main
from equipoise.cli.journal import CommandJournal, default_path
from equipoise.cli.rotation_live import RotationRequest
from equipoise.core.decision import Outcome, Record
from equipoise.core.errors import WorldFailed
from equipoise.engine.balancer import BALANCERS
from equipoise.engine.guards import held_by_lag
from equipoise.pools import policy as pools_policy
from equipoise.proportional import policy as proportional_policy
from equipoise.qos import execute as qos_execute
from equipoise.recommendation import explain as recommendation_explain
from equipoise.rotation import progress as rotation_progress
from equipoise.rotation.decide import decide
from equipoise.rotation.policy import RotationPolicy
from tests.support.cli.running import equipoise, terminal
from tests.support.journal.worlds import NOON, all_of, calm, decided, hot, journal
from tests.support.rotation.worlds import pod, world

GOLDEN = Path(__file__).parent / "golden"
EXAMPLE = Path(__file__).parents[2] / "examples" / "01-rotation-plan.yaml"

Ran = tuple[int, str, str]


class Terminal:
    """Runs the command in this process, which is quick, as wide as it is told."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._patch, self._capture = patch, capture
        self.columns = 80

    def __call__(self, *arguments: str) -> Ran:
        self._patch.setattr(sys, "argv", ["equipoise", *arguments])
        for name, value in terminal(self.columns).items():
            self._patch.setenv(name, value)
        with pytest.raises(SystemExit) as left:
            main.main()
        out, err = self._capture.readouterr()
        return int(left.value.code or 0), out, err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Give a terminal of 80 columns."""
    return Terminal(monkeypatch, capsys)


def _held(count: int, at: float) -> Record:
    made = hot(count, at, "shop/orders")
    reason = held_by_lag(5000.0, 1000)
    assert reason is not None
    return msgspec.structs.replace(made, decision=made.decision.hold(reason))


def _acted(count: int, at: float) -> Record:
    made = hot(count, at)
    first, second, *_ = made.decision.actions
    outcomes = (Outcome(first, "Evicted"), Outcome(second, "Blocked", "the budget web allows none now"))
    return msgspec.structs.replace(made, outcomes=outcomes)


def _long(count: int, at: float) -> Record:
    pods = [pod(f"checkout-7d9f8b6c5d-{turn:05}", 0.3 + turn / 100, node=f"n{turn}") for turn in range(40)]
    return decided(RotationPolicy(), world(*pods), count, at, "production/checkout-service")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with some of everything."""
    path = tmp_path / "journal.db"
    with journal(path) as kept:
        kept.append(*(calm(count, NOON + 30 * count, "shop/api", 0.5 + count / 100) for count in range(4)))
        kept.append(_acted(10, NOON + 200), _held(11, NOON + 300), _long(12, NOON + 400))
    return path


def _check_golden(name: str, text: str) -> None:
    lines = "".join(line.rstrip() + "\n" for line in text.splitlines())
    assert lines == (GOLDEN / name).read_text(), name


@pytest.mark.parametrize("columns", [80, 120])
def test_a_list_fits_the_screen(run: Terminal, path: Path, columns: int) -> None:
    """Golden, at two widths."""
    run.columns = columns
    status, out, err = run("journal", "list", "--file", str(path))
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    _check_golden(f"list-{columns}.txt", out)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize(
    ("name", "record_id"),
    [
        ("quiet", calm(0, NOON, "shop/api").id),
        ("acted", _acted(10, NOON + 200).id),
        ("held", _held(11, NOON + 300).id),
        ("long", _long(12, NOON + 400).id),
    ],
)
def test_an_explanation_fits_the_screen(
    run: Terminal, path: Path, name: str, record_id: str, columns: int
) -> None:
    """Golden, at two widths: the sentence, what was seen, the numbers, what was held, what came of it."""
    run.columns = columns
    status, out, err = run("journal", "explain", record_id, "--file", str(path))
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= columns
    _check_golden(f"explain-{name}-{columns}.txt", out)


def test_a_list_is_one_document_for_scripts(run: Terminal, path: Path) -> None:
    """JSON and YAML say the same."""
    _, as_json, _ = run("journal", "list", "--file", str(path), "-o", "json", "--reason", "heldbylag")
    _, as_yaml, _ = run("journal", "list", "--file", str(path), "-o", "yaml", "--reason", "HeldByLag")
    assert json.loads(as_json) == yaml.safe_load(as_yaml)
    (record,) = json.loads(as_json)["records"]
    assert record["reason"] == "HeldByLag"
    assert record["held"][0]["pod"] == "a"
    assert record["held"][0]["reason"] == "HeldByLag"
    assert record["streak"] is None


def test_json_lines_are_whole_records_and_a_journal_themselves(
    run: Terminal, path: Path, tmp_path: Path
) -> None:
    """What `-o jsonl` prints, `--file` reads."""
    status, out, _ = run("journal", "list", "--file", str(path), "-o", "jsonl")
    assert status == 0
    copy = tmp_path / "copy.jsonl"
    lines = out.splitlines(keepends=True)
    for order in (lines, lines[::-1], lines[1:] + lines[:1]):
        copy.write_text("".join(order))
        assert all_of(copy) == all_of(path)
        first = ("journal", "list", "--limit", "2", "--file")
        assert run(*first, str(copy)) == run(*first, str(path))
    assert run("journal", "replay", "--all", "--file", str(copy))[:2] == (0, "4 replayed, 4 the same.\n")


def test_since_and_limit_narrow_the_list(run: Terminal, path: Path) -> None:
    """The newest only; and nothing is that new."""
    _, out, _ = run("journal", "list", "--file", str(path), "--limit", "1", "-o", "json")
    assert [record["subject"] for record in json.loads(out)["records"]] == ["production/checkout-service"]
    assert run("journal", "list", "--file", str(path), "--since", "0s")[1] == "No record matches.\n"


@pytest.mark.parametrize("at", ["1e300", "-1e15"])
def test_a_record_of_a_moment_that_no_calendar_has_is_named_and_left_out(
    run: Terminal, tmp_path: Path, at: str
) -> None:
    """With the file and the line."""
    file = tmp_path / "odd.jsonl"
    good = calm(0, NOON).to_json().decode()
    odd = good.replace(f'"at":{NOON}', f'"at":{at}', 1)
    file.write_text(f"{good}\n{odd}\n")
    status, out, err = run("journal", "list", "--file", str(file))
    assert (status, out.splitlines()[0][:6]) == (0, calm(0, NOON).id[:6])
    assert err == (
        f"warning: journal {file}: line 2: expected a record: expected seconds since 1970, "
        f"of the years 1 to 9999, got {float(at):g}\n"
    )
    file.write_text(f"{odd}\n")
    status, out, err = run("journal", "list", "--file", str(file))
    assert (status, out) == (2, "")
    assert err.startswith(f"error: journal {file}: line 1: expected a record: ")


def test_a_balancer_that_there_is_not_is_bad_input(run: Terminal, path: Path) -> None:
    """As a reason is."""
    status, out, err = run("journal", "list", "--file", str(path), "--balancer", "rotaton")
    assert (status, out) == (2, "")
    assert err == (
        "error: --balancer rotaton: expected one of rotation, recommendation, proportional, qos, pools. "
        "Did you mean rotation?\n"
    )
    rooms = (rotation_progress, recommendation_explain, proportional_policy, qos_execute, pools_policy)
    assert tuple(room.BALANCER for room in rooms) == tuple(BALANCERS)


def test_a_record_is_shown_whole(run: Terminal, path: Path) -> None:
    """As YAML for people, as JSON for scripts."""
    wanted = _acted(10, NOON + 200)
    status, out, _ = run("journal", "show", wanted.id, "--file", str(path))
    assert status == 0
    assert msgspec.convert(yaml.safe_load(out), Record) == wanted
    _, out, _ = run("journal", "show", wanted.id, "--file", str(path), "-o", "json")
    assert msgspec.json.decode(out, type=Record) == wanted


def test_an_explanation_for_scripts_says_what_would_change_it(run: Terminal, path: Path) -> None:
    """The same sentences as for people."""
    _, out, _ = run("journal", "explain", _held(11, NOON + 300).id, "--file", str(path), "-o", "json")
    document = json.loads(out)
    assert document["otherwise"] == ["The lag would have to be known and below 1000."]
    assert document["subject"] == "shop/orders"


def test_replay_shows_both_and_fails_when_they_differ(
    run: Terminal, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1, and one line on standard error."""

    def differently(policy: RotationPolicy, seen: object, memory: object) -> object:
        changed = policy.model_copy(update={"top_k": 1})
        return decide(changed, seen, memory)  # type: ignore[arg-type]

    assert run("journal", "replay", "--all", "--file", str(path)) == (0, "4 replayed, 4 the same.\n", "")
    monkeypatch.setattr("equipoise.rotation.balancer.decide", differently)
    name = _acted(10, NOON + 200).id
    status, out, err = run("journal", "replay", name, "--file", str(path))
    assert status == 1
    assert err == f"error: 1 of 1 records decide differently now: {name}\n"
    assert "1 replayed, 0 the same." in out
    assert "was" in out
    assert "now" in out
    status, out, _ = run("journal", "replay", "--all", "--file", str(path), "-o", "json")
    assert status == 1
    document = json.loads(out)
    assert document["same"] + len(document["different"]) == document["replayed"] == 4
    assert name in {part["id"] for part in document["different"]}
    assert {"recorded", "now", "sentence"} < set(document["different"][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["list", "--file", "no/such.db"],
            "journal no/such.db: it does not exist yet; `equipoise rotation plan",
        ),
        (
            ["list", "--file", "FILE", "--reason", "Rotat"],
            "--reason Rotat: expected a reason. Did you mean Rotate?",
        ),
        (["list", "--file", "FILE", "--since", "5x"], "--since: expected seconds or a span"),
        (["list", "--file", "FILE", "--limit", "0"], "--limit"),
        (["show", "zz", "--file", "FILE"], "record 'zz': no id starts like this"),
        (["show", "", "--file", "FILE"], "record '': no id starts like this"),
        (["explain", "1", "--file", "FILE"], "record '1': expected letters that only one id starts with"),
        (["replay", "--file", "FILE"], "replay: expected IDs or --all"),
        (["replay", "x", "--all", "--file", "FILE"], "replay: expected IDs or --all"),
        (["list", "--file", "."], "journal .: Is a directory"),
    ],
    ids=" ".join,
)
def test_wrong_words_get_one_line_and_exit_status_2(
    run: Terminal, path: Path, arguments: list[str], message: str
) -> None:
    """Never a traceback."""
    status, out, err = run("journal", *(str(path) if word == "FILE" else word for word in arguments))
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_corrupt_journal_is_one_line(run: Terminal, path: Path) -> None:
    """Exit status 2: the file is malformed."""
    path.write_bytes(b"nonsense")
    status, out, err = run("journal", "list", "--file", str(path))
    assert (status, out) == (2, "")
    assert err == f"error: journal {path}: expected a journal: file is not a database\n"


@pytest.mark.parametrize("name", ["journal.db", "journal.jsonl"])
def test_a_plan_from_a_file_is_kept_with_its_inputs(run: Terminal, tmp_path: Path, name: str) -> None:
    """Twice is two records, and both replay."""
    path = tmp_path / name
    for _ in range(2):
        status, out, err = run(
            "rotation", "plan", "--from", str(EXAMPLE), "--journal", str(path), "-o", "json"
        )
        assert (status, err) == (0, "")
    plan = json.loads(out)["decisions"][0]
    records = all_of(path)
    assert len({record.id for record in records}) == 2
    assert all(record.has_inputs for record in records)
    assert records[0].decision.reason.sentence == plan["sentence"]
    assert run("journal", "replay", "--all", "--file", str(path))[1] == "2 replayed, 2 the same.\n"


@pytest.mark.parametrize(
    ("prepare", "status", "message"),
    [
        (lambda path: path.write_text("my notes"), 2, "expected a journal or a new file, got another file"),
        (lambda path: path.mkdir(), 2, "Is a directory"),
    ],
    ids=["another file", "folder"],
)
def test_a_plan_never_writes_into_something_else(
    run: Terminal, tmp_path: Path, prepare: object, status: int, message: str
) -> None:
    """The plan is printed, and the failure is said."""
    path = tmp_path / "notes"
    prepare(path)  # type: ignore[operator]
    done = run("rotation", "plan", "--from", str(EXAMPLE), "--journal", str(path))
    assert done[0] == status
    assert message in done[2]
    assert "Rotate" in done[1]
    assert path.is_dir() or path.read_text() == "my notes"


@pytest.mark.parametrize("verb", ["plan", "apply"])
def test_what_is_decided_on_a_live_cluster_is_kept_too(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """With its inputs, so that it replays; also when an apply fails in the end: its pods have gone."""
    path = tmp_path / "journal.db"

    def decide_live(request: RotationRequest) -> object:
        return [hot(1).decision], [hot(1)]

    def act_live(
        request: RotationRequest, interval: float, timeout: float, journal: CommandJournal
    ) -> object:
        assert (interval, timeout) == (10.0, 3600.0)
        journal.append(_acted(1, NOON), hot(2, NOON + 30))
        raise WorldFailed("shop/web: not verified within 3600 s")

    monkeypatch.setattr("equipoise.cli.rotation_live.plan_rotation", decide_live)
    monkeypatch.setattr("equipoise.cli.rotation_live.apply_rotation", act_live)
    status, out, err = run("rotation", verb, "--journal", str(path), "-o", "json")
    if verb == "plan":
        assert (status, err) == (0, "")
        assert json.loads(out)["decisions"][0]["reason"] == "Rotate"
    else:
        assert (status, out) == (1, "")
        assert err == "error: shop/web: not verified within 3600 s\n"
    assert len(all_of(path)) == (1 if verb == "plan" else 2)
    assert run("journal", "replay", "--all", "--file", str(path))[0] == 0


def test_nothing_is_done_when_it_could_not_be_written_down(
    run: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder for a journal is said before the first pod goes."""

    def act_live(*_: object) -> object:
        raise AssertionError("a pod would have gone")

    monkeypatch.setattr("equipoise.cli.rotation_live.apply_rotation", act_live)
    status, out, err = run("rotation", "apply", "--journal", str(tmp_path))
    assert (status, out) == (2, "")
    assert err == f"error: --journal {tmp_path}: Is a directory\n"


def test_the_journal_is_where_the_user_says_or_in_the_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, the state folder, the home."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("EQUIPOISE_JOURNAL", raising=False)
    assert default_path() == Path("/home/me/.local/state/equipoise/journal.db")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_path() == Path("/state/equipoise/journal.db")
    monkeypatch.setenv("EQUIPOISE_JOURNAL", "/var/j.db")
    assert default_path() == Path("/var/j.db")


def test_the_whole_way_in_processes_of_their_own(tmp_path: Path) -> None:
    """Plan and replay, as a user does."""
    place = {"EQUIPOISE_JOURNAL": str(tmp_path / "journal.db")}
    done = equipoise("rotation", "plan", "--from", str(EXAMPLE), "--journal", place["EQUIPOISE_JOURNAL"])
    assert done.returncode == 0, done.stderr
    done = equipoise("journal", "replay", "--all", environment=place)
    assert (done.returncode, done.stdout) == (0, "1 replayed, 1 the same.\n"), done.stderr
