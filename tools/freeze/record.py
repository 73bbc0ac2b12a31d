"""Records what commands print and files hold, as text in a folder: one file for each thing."""

import ast
import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
INSIDE = HERE / "inside.py"
KEPT = "kept"
"""The folder of bytes as they were written: a journal, a ledger, an agent's state."""
JOURNAL = "journal.db"
FIGURES = "figures.json"
SKIPPED = "SKIPPED"
CHART_FILES = ("Chart.yaml", "values.yaml", "values.schema.json", "files/alerts.yaml", "files/dashboard.json")
RECORDS = "tests/**/records/*"
HELM_RELEASE = ("template", "blue", "--namespace", "balance", "--include-crds", "--kube-version=1.35.0")
WITH_FORMAT = ("plan", "simulate", "forecast", "validate", "apply")
"""Commands that are run as a table too, and as JSON."""
EXPLAINED_MAX = 25
VARIABLE = re.compile(
    r"(EQUIPOISE|KUBE|REBALANCE|TOLERANCE|MINIMUM|HPA|KAFKA|METRICS|PROMETHEUS|DEPLOY|POD|NODE)_[A-Z0-9_]+"
)
VOLATILE = (
    (re.compile(r"127\.0\.0\.1:(?!9\b)\d+"), "127.0.0.1:PORT"),
    (re.compile(r"\b\d{2}:\d{2}:\d{2} (?=[a-z0-9-]+/)"), "TIME "),
    (re.compile(r"(?<= in )\d+(\.\d+)? m?s\b"), "SOME s"),
    (re.compile(r"equipoise-\d+-[0-9a-f]{16}\.sock"), "SOCKET"),
)
TRACEBACK = re.compile(r"^Traceback .*\n(?:(?:[ ].*)?\n)+", re.MULTILINE)
"""Where in our modules it was is nobody's to rely on; what was raised follows."""
Said = list[dict[str, Any]]


class Tree:
    """A checkout with its `.venv`, and a folder in which its commands run."""

    def __init__(self, path: Path, work: Path) -> None:
        self.path, self.work = path.resolve(), work.resolve()
        self.python = str(self.path / ".venv" / "bin" / "python")
        self.examples = str(ROOT / "examples")

    def environment(self, folder: Path, more: Mapping[str, str] = {}) -> dict[str, str]:
        """Return an environment in which nothing of the caller's own matters."""
        fixed = {"COLUMNS": "100", "NO_COLOR": "1", "LANG": "C.UTF-8", "TZ": "UTC", "PATH": os.defpath}
        state = str(folder / ".state")
        return {**fixed, "HOME": str(folder), "XDG_STATE_HOME": state, "PYTHONHASHSEED": "0", **more}

    def run(self, cases: Iterable[Mapping[str, Any]]) -> dict[str, Said]:
        """Run cases, and return what each step of each said."""
        with tempfile.TemporaryDirectory(dir=self.work) as name:
            folder = Path(name)
            job = folder / "job.json"
            told = [self._case(case, folder / str(case["name"])) for case in cases]
            job.write_text(json.dumps({"work": str(folder), "cases": told}))
            subprocess.run(
                [self.python, str(INSIDE), "batch", str(job)],
                env=self.environment(folder),
                cwd=folder,
                check=True,
            )
            said = {one["name"]: json.loads((folder / f"{one['name']}.json").read_text()) for one in told}
            for steps in said.values():
                for step in steps:
                    step.update({key: self.plain(step[key], folder) for key in ("out", "err")})
            return said

    def _case(self, case: Mapping[str, Any], folder: Path) -> dict[str, Any]:
        environment = self.environment(folder, case.get("env", {}))
        steps = [
            {
                "argv": [word.replace("{examples}", self.examples) for word in words],
                "stdin": case.get("stdin", ""),
                "env": environment,
            }
            for words in case["steps"]
        ]
        return {"name": case["name"], "files": case.get("files", {}), "steps": steps}

    def plain(self, text: str, folder: Path | None = None) -> str:
        """Return a text without what is different in every run, and in every place."""
        for place, name in ((folder, "WORK"), (self.examples, "EXAMPLES"), (self.path, "TREE")):
            if place is not None:
                text = re.sub(rf"{re.escape(str(place))}(/case-\d+)?", name, text)
        text = TRACEBACK.sub("Traceback\n", text)
        for pattern, word in VOLATILE:
            text = pattern.sub(word, text)
        return text


def record(tree: Tree, target: Path, old: Path | None) -> None:
    """Record everything that needs no cluster; `old` is another recording, whose bytes are read."""
    cases = yaml.safe_load((HERE / "cases.yaml").read_text())
    told = list(_cases(cases))
    kept = target / KEPT
    demo = {"name": "demo", "steps": [["demo", "--once", "--journal", str(kept / JOURNAL)]]}
    said = tree.run([demo, *told, {"name": "help", "steps": [["--help"]]}])
    for case in told:
        _write_said(target / "cases" / _folder_of(case) / f"{case['name']}.txt", case, said[case["name"]])
    _write(target / "demo.txt", said["demo"][0]["out"].replace(str(target), "TARGET"))
    _record_journals(tree, target, (old or target) / KEPT)
    _record_helps(tree, target, said["help"][0]["out"])
    _record_facts(tree, target)
    _record_charts(tree, target, cases["charts"])


def _cases(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    inputs = document["inputs"]
    for number, case in enumerate(document["cases"]):
        files = {name: inputs[text] for name, text in case.get("files", {}).items()}
        steps = case.get("steps") or list(_formats(case["run"]))
        stdin = inputs[case["stdin"]] if "stdin" in case else ""
        encoded = {name: text.encode().decode("latin-1") for name, text in files.items()}
        yield {
            "name": f"case-{number:03}",
            "steps": steps,
            "files": encoded,
            "stdin": stdin.encode().decode("latin-1"),
            "env": case.get("env", {}),
        }


def _formats(words: list[str]) -> Iterator[list[str]]:
    """Return a command, and where it has a choice of output the other one too."""
    yield words
    if not set(WITH_FORMAT) & set(words[:2]):
        return
    if "-o" not in words:
        yield [*words, "-o", "json"]
    elif "json" in words:
        place = words.index("-o")
        yield [*words[:place], *words[place + 2 :]]


def _folder_of(case: Mapping[str, Any]) -> str:
    words = case["steps"][0]
    return words[0] if words and re.fullmatch(r"[a-z]+", words[0]) else "other"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _write_said(path: Path, case: Mapping[str, Any], said: Said) -> None:
    parts = []
    for words, step in zip(case["steps"], said, strict=True):
        called = " ".join(word if re.fullmatch(r"[\w./={}:,-]+", word) else repr(word) for word in words)
        variables = "".join(f"{name}={value} " for name, value in case.get("env", {}).items())
        parts.append(f"$ {variables}equipoise {called}\n{step['out']}")
        parts += [f"! {line}\n" for line in step["err"].splitlines()]
        parts.append(f"= {step['status']}\n\n")
    _write(path, "".join(parts))


def _record_journals(tree: Tree, target: Path, kept: Path) -> None:
    """Read a journal of the demo, and the records of the fixtures, by every command that reads one."""
    journals = {"demo": kept / JOURNAL}
    journals |= {path.stem: path for path in sorted(ROOT.glob(RECORDS)) if path.is_file()}
    files = {name: path.read_bytes().decode("latin-1") for name, path in journals.items()}
    names = {name: f"{name}{journals[name].suffix}" for name in journals}
    listing = ("journal", "list", "--limit", "100000")
    cases = [
        {
            "name": name,
            "files": {names[name]: files[name]},
            "steps": [
                [*listing, "--file", names[name], "-o", "json"],
                [*listing, "--file", names[name]],
                ["journal", "replay", "--all", "--file", names[name]],
                ["journal", "replay", "--all", "--file", names[name], "-o", "json"],
            ],
        }
        for name in journals
    ]
    said = tree.run(cases)
    for case in cases:
        _write_said(target / "journal" / f"{case['name']}.txt", case, said[str(case["name"])])
    explained = []
    for name in journals:
        listed = json.loads(said[name][0]["out"])
        rows = listed if isinstance(listed, list) else next(v for v in listed.values() if isinstance(v, list))
        chosen = _spread([row["id"] for row in rows])
        steps = [["journal", "explain", id_, "--file", names[name]] for id_ in chosen]
        steps += [["journal", "show", id_, "--file", names[name], "-o", "json"] for id_ in chosen]
        explained.append({"name": name, "files": {names[name]: files[name]}, "steps": steps})
    said = tree.run(explained)
    for case in explained:
        _write_said(target / "explained" / f"{case['name']}.txt", case, said[str(case["name"])])
    with contextlib.closing(sqlite3.connect(target / KEPT / JOURNAL)) as opened:
        rows = opened.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name").fetchall()
        version = opened.execute("PRAGMA user_version").fetchone()
    _write(target / "written" / "journal.sql", "".join(f"{row[0]};\n" for row in (*rows, (f"-- {version}",))))


def _spread(ids: list[str]) -> list[str]:
    return ids[:: max(1, len(ids) // EXPLAINED_MAX)]


def _record_helps(tree: Tree, target: Path, first: str) -> None:
    """Ask every command for its help, from the top down; and every schema, and every setting's variable."""
    _write(target / "help" / "equipoise.txt", first)
    level = [[name] for name in _commands(first)]
    while level:
        cases = [{"name": "-".join(words), "steps": [[*words, "--help"]]} for words in level]
        said = tree.run(cases)
        below = []
        for words, case in zip(level, cases, strict=True):
            text = said[str(case["name"])][0]["out"]
            _write(target / "help" / f"equipoise-{case['name']}.txt", text)
            below += [[*words, name] for name in _commands(text)]
        level = below
    names = tree.run([{"name": "s", "steps": [["schema", "--list"], ["config", "-o", "json"]]}])["s"]
    schemas = [{"name": name, "steps": [["schema", name]]} for name in names[0]["out"].split()]
    settings = json.loads(names[1]["out"])
    said = tree.run([*schemas, *_variables(settings.get("settings", settings))])
    for name, steps in said.items():
        folder = "variables" if name.startswith("EQUIPOISE_") else "schema"
        _write(target / folder / f"{name}.txt", f"{steps[0]['out']}{steps[0]['err']}= {steps[0]['status']}\n")


def _commands(text: str) -> list[str]:
    _, _, listed = text.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][a-z-]*)(?:  |$)", listed, re.MULTILINE)


def _variables(settings: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[dict[str, Any]]:
    """Return for each setting a case that sets it by its variable to what few settings may be."""
    for name, value in settings.items():
        here = (*path, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())
        if isinstance(value, dict) and value:
            yield from _variables(value, here)
        else:
            variable = "_".join(("EQUIPOISE", *here))
            yield {"name": variable, "steps": [["config"]], "env": {variable: "~odd"}}


def _record_facts(tree: Tree, target: Path) -> None:
    """Record reason codes, what the references say of metrics, and every variable that the source names."""
    done = subprocess.run(
        [tree.python, str(INSIDE), "facts"],
        env=tree.environment(tree.work),
        cwd=tree.path,
        capture_output=True,
        text=True,
        check=True,
    )
    facts = json.loads(done.stdout)
    _write(target / "reasons.txt", "".join(f"{code}\n" for code in facts["reasons"]))
    reasons = tree.path / "docs" / "reference" / "reasons.md"
    rows = [line for line in reasons.read_text().splitlines() if line.startswith("| `")]
    _write(target / "reasons-told.txt", "".join(f"{row}\n" for row in sorted(rows)))
    for name, text in facts["references"].items():
        _write(target / "references" / name, text)
    _write(target / "environment.txt", "".join(f"{name}\n" for name in sorted(_named_variables(tree.path))))
    project = (tree.path / "pyproject.toml").read_text()
    _write(target / "commands.txt", "".join(re.findall(r"^[\w-]*equipoise(?= = )", project, re.MULTILINE)))


def _named_variables(tree: Path) -> set[str]:
    """Return every text of the source that is wholly the name of a variable."""
    found = set()
    for path in (tree / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {node.value} if VARIABLE.fullmatch(node.value) else set()
    return found


def _record_charts(tree: Tree, target: Path, sets: Mapping[str, Any]) -> None:
    """Render the chart with each set of values; its own files are recorded in any case."""
    chart = tree.path / "charts" / "equipoise"
    for name in CHART_FILES:
        _write(target / "chart" / name, (chart / name).read_text())
    helm = find_helm()
    if helm is None:
        _write(target / "rendered" / SKIPPED, "there is no helm: python -m tests.testbed build helm\n")
        return
    for name, values in sets.items():
        done = subprocess.run(
            [helm, *HELM_RELEASE, "--values", "-", str(chart)],
            input=yaml.safe_dump(values),
            capture_output=True,
            text=True,
            check=False,
        )
        said = tree.plain(f"{done.stdout}{done.stderr}= {done.returncode}\n")
        _write(target / "rendered" / f"{name}.yaml", said)


def find_helm() -> str | None:
    """Find helm in the testbed's cache, else on the path; none is built."""
    chosen = os.environ.get("EQUIPOISE_TESTBED")
    cache = Path(chosen) if chosen else Path.home() / ".cache" / "equipoise-testbed"
    found = sorted((cache / "bin").glob("helm-*"))
    return str(found[-1]) if found else shutil.which("helm")
