"""Files: what users give, what other programs keep, and what the kernel says."""

import atexit
import io
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import urllib3

from equipoise.adapters.cgroups import connect_host
from equipoise.adapters.journal.schema import is_ours
from equipoise.adapters.kubernetes.connection import Wire
from equipoise.adapters.kubernetes.credentials import TokenFileSource, _check, run_plugin, source_for
from equipoise.adapters.kubernetes.kubeconfig import (
    Endpoint,
    EnvironmentEntry,
    ExecConfig,
    Identity,
    find_target,
    in_cluster,
)
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.sample_files import read_samples
from equipoise.cli.manifests import judge
from equipoise.core.decision import Record
from equipoise.core.errors import EquipoiseError
from equipoise.pools.policy import policy_from
from equipoise.ports.node import ContainerRef
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.parse import read_observations, read_policy_file
from equipoise.qos.decide import decide as decide_qos
from equipoise.qos.plan_file import read_plan_file as read_node_file
from equipoise.recommendation.files import FileDefaults, observe, observe_many
from equipoise.rotation.decide import decide as decide_rotation
from equipoise.rotation.plan_file import read_plan_file, rotation_settings
from equipoise.rotation.policy import ENVIRONMENT
from equipoise.runtime.agent.state import StateFile
from equipoise.runtime.layers import effective, variables
from equipoise.runtime.output import read_text, read_yaml
from equipoise.runtime.redis import read_url
from equipoise.runtime.tokens import Tokens
from tests.fixtures.kept import BALANCERS
from tests.fixtures.kept import FOLDER as KEPT
from tests.support.agent.trees import write
from tests.support.crd.scaling_manifests import SCALING_GOOD
from tests.support.fuzz.machine import Input, Reader
from tests.support.fuzz.objects import SOUND
from tests.support.journal.damage import lines_file, read, remove, sqlite_file, start_lines, start_sqlite
from tests.support.qos.worlds import node, policy, rule
from tests.support.qos.worlds import pod as pod_of_node

FOLDER = Path(mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
ROTATION = {
    "workload": "shop/web",
    "hpa": {"name": "web", "target": {"type": "Utilization", "value": 70}},
    "pods": [{"name": f"p{n}", "cpu": 0.5 + n, "request": 1.0, "age": "1h", "restarts": 0} for n in range(4)],
    "policy": {"topK": 2, "toleranceMultiplier": 1.5, "minReplicas": 3},
}
NODE_FILE = node(
    {"cpu_total_usage": 8000, "memory_total_usage": "40Gi"},
    [pod_of_node("a", 1.2, "2Gi", qosClass="BestEffort", quota=-1, startTime="2026-01-01T00:00:00Z")],
    policy(rule("cpu_total_usage", 6000, "throttle")),
    state={"lastTrigger": "2026-01-01T00:00:00Z", "breaches": {"cpu-total-usage": 1}},
)
TIERS = {"tiers": {"gold": {"type": "exclusive", "target": 4}}, "default_chain": ["gold"]}
CSV = b"timestamp,namespace,workload,pod,value\n" + b"".join(
    b"%d,shop,web,web-%d,0.%d\n" % (1_790_000_000 + 60 * (n // 2), n % 2, n % 10) for n in range(60)
)
ONE = b"ts,value\n" + b"".join(b"2026-09-21T10:%02d:00Z,1.%d\n" % (n, n) for n in range(60))
OBSERVATIONS = b"timestamp,cores,nodes\n" + b"".join(
    b"%d,%d,3\n" % (1_790_000_000 + 10 * n, n) for n in range(20)
)
KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: c
clusters:
- name: c
  cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true, proxy-url: "http://p:3128"}
users:
- name: u
  user: {username: me, password: secret, as: you, as-groups: [a], as-user-extra: {k: [v]}}
contexts:
- name: c
  context: {cluster: c, user: u, namespace: shop}
"""
CREDENTIAL = json.dumps(
    {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "metadata": {"name": "x"},
        "status": {"token": "t", "expirationTimestamp": "2999-01-01T00:00:00Z"},
    }
).encode()


def file_of(given: Input, name: str) -> Path:
    """Write the input to a file of this name."""
    path = FOLDER / name
    path.write_bytes(given.data)
    return path


def _document(use: Callable[[Any], object], name: str = "file.yaml") -> Callable[[Input], None]:
    def read_it(given: Input) -> None:
        use(read_yaml(str(file_of(given, name))))

    return read_it


def _rotation(document: Any) -> None:
    asked, seen = read_plan_file(document, "file.yaml", {}, {})
    decide_rotation(asked, seen)


def _node_file(document: Any) -> None:
    planned = read_node_file(document, "file.yaml", 1_800_000_000.0)
    decide_qos(planned.policy, planned.seen, planned.memory)


def _scaling(document: Any) -> None:
    CompiledPolicy.of(read_policy_file(document, "file.yaml").spec)


def _samples(suffix: str) -> Callable[[Input], None]:
    def read_it(given: Input) -> None:
        path = str(file_of(given, f"samples{suffix}"))
        samples = read_samples(path)
        if samples.is_of_many:
            observe_many(samples, FileDefaults(path), [])
        else:
            observe(samples, FileDefaults(path), "web")

    return read_it


def _observations(given: Input) -> None:
    path = str(file_of(given, "observations.csv"))
    read_observations(read_text(path), path, ("cores", "nodes"))


def _kubeconfig(given: Input) -> None:
    target = find_target(str(file_of(given, "config")))
    certificate = source_for(target).current().certificate
    with suppress(urllib3.exceptions.HTTPError):  # a session says then that the server is unreachable
        Wire(target.endpoint, 1)._pool_for(certificate).close()


def _plugin(given: Input) -> None:
    _check(ExecConfig("plugin", "client.authentication.k8s.io/v1"), given.data, 1.79e9)


def _plugin_run(given: Input) -> None:
    """The plugin's words in a kubeconfig: command, arguments and variables, as somebody wrote them."""
    words = given.data.decode("utf-8", "surrogateescape").split(" ")
    command, value, *args = [*words, "", ""]
    config = ExecConfig(command, "client.authentication.k8s.io/v1", args)
    run_plugin(config, Endpoint("https://x"), str(FOLDER), environment={"PATH": "/nowhere", "A": "b"})
    assert value is not None


def _plugin_done(given: Input) -> None:
    """A real command that prints what is given; a word of the kubeconfig goes along to it."""
    path = file_of(given, "credential")
    odd = given.data[-40:].decode("utf-8", "surrogateescape")
    config = ExecConfig(
        "cat",
        "client.authentication.k8s.io/v1",
        [str(path), *([odd] if given.data != CREDENTIAL else [])],
        [EnvironmentEntry("ODD", odd)],
        provideClusterInfo=True,
    )
    run_plugin(config, Endpoint("https://x", ca_data=given.data), str(FOLDER))


def _service_account(given: Input) -> None:
    folder = FOLDER / "account"
    folder.mkdir(exist_ok=True)
    (folder / "namespace").write_bytes(given.data)
    (folder / "ca.crt").write_bytes(b"")
    (folder / "token").write_bytes(given.data)
    in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, folder)
    TokenFileSource(Identity(token_file=str(folder / "token"))).current()


def _tokens(given: Input) -> None:
    path = file_of(given, "tokens")
    PrometheusSettings("http://p", bearer_token_file=str(path)).request_headers()
    Tokens(str(path)).holds("x", lambda token: token.decode(errors="replace"))


def _url_file(given: Input) -> None:
    read_url("--redis-file", str(file_of(given, "url")))


def _manifests(given: Input) -> None:
    verdict = judge([str(file_of(given, "manifests.yaml"))])
    if verdict.findings:
        raise EquipoiseError(str(verdict.findings[0])[:300].replace("\n", " ").strip() or "a finding")


def _operator_settings(given: Input) -> None:
    effective(str(file_of(given, "operator.yaml")), {}, {})


def _environment(given: Input) -> None:
    """Every variable of the rotation and of the operator, one after the other, with the same odd text."""
    text = given.data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    refused: EquipoiseError | None = None
    for name in ENVIRONMENT:
        try:
            rotation_settings({name: text})
        except EquipoiseError as error:
            refused = error
    for name in list(variables())[:: max(1, len(text) % 7)]:
        try:
            effective(None, {name: text}, {}, [f"{name}={text}"][: len(text) % 2])
        except EquipoiseError as error:
            refused = error
    if refused is not None:
        raise refused


def _state(given: Input) -> None:
    folder = FOLDER / "state"
    folder.mkdir(exist_ok=True)
    file = StateFile(folder / "state.json", "boot-1")
    file.path.write_bytes(given.data)
    file.load().implausibility(1e9)


CGROUP_FILES = {
    "cpu.stat": b"usage_usec 1000\nuser_usec 5\n",
    "cpu.max": b"20000 100000\n",
    "memory.current": b"4096\n",
    "memory.stat": b"anon 1\ninactive_file 7\nactive_file 3\n",
}
PROC_FILES = {
    "stat": b"cpu  10 20 30 40 50 60 70 0 0 0\ncpu0 1 2 3 4 5 6 7 0 0 0\n",
    "meminfo": b"MemTotal:  24689776 kB\nMemAvailable: 1234 kB\n",
    "sys/kernel/random/boot_id": b"00000000-0000-0000-0000-000000000000\n",
    "loadavg": b"0.50 1.20 3.14 1/100 999\n",
    "pressure/cpu": b"some avg10=0.12 avg60=0.05 avg300=0.01 total=123\nfull avg10=0.00 total=0\n",
}
PLACE = "kubepods/besteffort/poduid-a/a0000000"


def _kernel(given: Input) -> None:
    """A file of the kernel, whose name stands on the first line; the others are sound."""
    root, proc = FOLDER / "cgroup", FOLDER / "proc"
    if not root.exists():
        write(root, cgroup_controllers="cpu memory")
        (proc / "pressure").mkdir(parents=True)
        (proc / "sys/kernel/random").mkdir(parents=True)
        (root / PLACE).mkdir(parents=True)
    name, _, content = given.data.partition(b"|")
    for folder, files in (
        (root / PLACE, CGROUP_FILES),
        (root / "kubepods", CGROUP_FILES),
        (proc, PROC_FILES),
    ):
        for each, sound in files.items():
            (folder / each).write_bytes(content if each.encode() == name else sound)
    for is_of_pods in (False, True):
        host = connect_host(str(root), str(proc), is_of_pods=is_of_pods)
        host.read_node()
        host.boot_id()
        host.read([ContainerRef("uid-a", "a0000000", "BestEffort")], is_deep=True)
        assert host.set_quota(ContainerRef("uid-a", "a0000000", "BestEffort"), 5000)


def _journal(start: Callable[[Path, bytes], None], name: str) -> Callable[[Input], None]:
    def begin(given: Input) -> None:
        path = FOLDER / name
        start(path, given.data)
        is_ours(path)
        remove(path)

    return begin


def _journal_read(given: Input) -> None:
    """A journal that another machine wrote: read, decided again and shown as a page."""
    from equipoise.cli.replay import replay
    from equipoise.dashboard.pages.qos import _sorted_pods
    from equipoise.dashboard.render import whole

    path = FOLDER / "read.jsonl"
    path.write_bytes(given.data + b"\n")
    found, said = read(path)
    replay(found)
    for record in found:
        assert str(whole(record)), "it has a page"
        _sorted_pods(record)
        assert Record.from_json(record.to_json()).id == record.id
    if said:
        raise EquipoiseError(said[0][:300].replace("\n", " "))


@cache
def _parquet() -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    rows = range(60)
    columns = {"timestamp": [1_790_000_000 + 60 * n for n in rows], "pod": [f"web-{n % 2}" for n in rows]}
    columns |= {"namespace": ["shop" for _ in rows], "workload": ["web" for _ in rows]}
    columns |= {"value": [n / 7 for n in rows]}
    out = io.BytesIO()
    parquet.write_table(pa.table(columns), out, row_group_size=20)
    return out.getvalue()


def _yaml(document: Any) -> tuple[bytes, ...]:
    from equipoise.core.documents import dump

    return (dump(document).encode(),)


def _as_json(document: Any) -> tuple[bytes, ...]:
    return (json.dumps(document).encode(),)


def _records() -> tuple[bytes, ...]:
    """Return a record of each balancer, the shortest that real runs left behind."""
    return tuple(min((KEPT / f"{one}.jsonl").read_bytes().splitlines(), key=len) for one in BALANCERS)


def readers() -> list[Reader]:
    """Return the readers of files, and of what is read like one."""
    kernel = tuple(
        name.encode() + b"|" + sound for files in (CGROUP_FILES, PROC_FILES) for name, sound in files.items()
    )
    scaling = SCALING_GOOD["everything"]
    rotation_policy = SOUND["RotationPolicy"].replace(
        b'{"metadata"', b'{"apiVersion":"equipoise.dev/v1alpha1","kind":"RotationPolicy","metadata"', 1
    )
    state = StateFile(FOLDER / "state.json", "boot-1")
    from equipoise.qos.state import AgentState

    state.save(AgentState("boot-1", memory={"lastTrigger": {"a": 1.0}}))
    kept = state.path.read_bytes()
    return [
        Reader("plan file: rotation", _yaml(ROTATION), _document(_rotation), _as_json(ROTATION)),
        Reader("plan file: qos", _yaml(NODE_FILE), _document(_node_file), _as_json(NODE_FILE)),
        Reader("plan file: proportional", _yaml(scaling), _document(_scaling), _as_json(scaling)),
        Reader(
            "plan file: pools", _yaml(TIERS), _document(lambda one: policy_from(one, "x")), _as_json(TIERS)
        ),
        Reader("manifests", _yaml(json.loads(rotation_policy)), _manifests, (rotation_policy,)),
        Reader(
            "settings of the operator",
            (b"logs: {level: info}\nlease: {name: a}\nintervals: {}\n",),
            _operator_settings,
        ),
        Reader(
            "environment variables",
            (b"1.5", b"5m", b"true", b"http://user:pass@host:1/x"),
            _environment,
            is_slow=True,
            refuses=True,
        ),
        Reader("CSV of samples", (CSV, ONE), _samples(".csv")),
        Reader("Parquet of samples", (_parquet(),), _samples(".parquet"), is_slow=True),
        Reader("CSV of observations", (OBSERVATIONS,), _observations),
        Reader("kubeconfig", (KUBECONFIG,), _kubeconfig),
        Reader("exec plugin: its answer", (), _plugin, (CREDENTIAL,)),
        Reader("exec plugin: how it is called", (b"plugin a b",), _plugin_run, refuses=True),
        Reader("exec plugin: run", (CREDENTIAL,), _plugin_done, is_slow=True),
        Reader("service account of a pod", (b"shop\n",), _service_account),
        Reader("token files", (b"0123456789abcdef0123456789abcdef\n",), _tokens),
        Reader("file with the URL of Redis", (b"redis://user:pass@redis:6379/0\n",), _url_file),
        Reader("state file of the agent", (kept,), _state),
        Reader("cgroup and /proc files", kernel, _kernel),
        Reader("journal, SQLite", (sqlite_file(FOLDER),), _journal(start_sqlite, "journal.db"), is_slow=True),
        Reader(
            "journal, SQLite, in place",
            (sqlite_file(FOLDER),),
            _journal(start_sqlite, "journal.db"),
            is_slow=True,
            keeps_length=True,
        ),
        Reader(
            "journal, JSON lines", (lines_file(FOLDER),), _journal(start_lines, "journal.jsonl"), is_slow=True
        ),
        Reader("journal, decided again and shown", (), _journal_read, _records(), is_slow=True),
    ]
