"""The real neighbours as fixtures. They are started once, when the first test needs them."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it brings no types

from tests.support.e2e.charts import Helm, audit_arguments
from tests.testbed import (
    ControlPlane,
    Kwok,
    Machine,
    MetricsServer,
    NewMachine,
    Prometheus,
    RealNode,
    RedisCluster,
    RedisServer,
    StartControlPlane,
    StartPrometheus,
    StartRedis,
    StartRedisCluster,
    Unavailable,
    wait_until,
)
from tests.testbed.cache import is_promised
from tests.testbed.scenes import SIX_LOADS, history, namespaced, six_pods

Offered = Callable[[], AbstractContextManager[None]]


REAL_NODE = "test_node"
"""How files begin that use the real node. One worker takes them all: two nodes on one machine
would not disturb each other's pods, but share its processors."""
LONGEST_FIRST = ("test_rotation", REAL_NODE, "test_operator", "test_watch", "test_sim_hpa", "test_pools")
"""Groups that take minutes: begun first, so that no worker is alone with one at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark everything in this folder, and put what takes long first."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    for item in ours:
        item.add_marker("e2e")
        if "real_node" in getattr(item, "fixturenames", ()) and _group(item.path.stem) != REAL_NODE:
            raise pytest.UsageError(f"{item.nodeid}: real_node is for files that begin with {REAL_NODE}")
    if len(ours) == len(items):
        items.sort(key=lambda item: _turn(_group(item.path.stem)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Give whole files to a worker, since their tests share what they start; the real node's all to one."""
    return _WholeFiles(config, log)


class _WholeFiles(LoadScopeScheduling):  # type: ignore[misc]  # for the same reason
    def _split_scope(self, nodeid: str) -> str:
        return _group(Path(nodeid.partition("::")[0]).stem)


def _group(stem: str) -> str:
    return REAL_NODE if stem.startswith(REAL_NODE) else stem


def _turn(group: str) -> int:
    return LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST)


@pytest.fixture(scope="session")
def offered(pytestconfig: pytest.Config) -> Offered:
    """A context to start neighbours in: skips where the machine cannot provide one.

    Where it has been promised that the machine can, it fails instead. A first build takes minutes, so what
    the testbed says is shown at once, not captured.
    """
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    @contextmanager
    def context() -> Iterator[None]:
        try:
            with capture.global_and_fixture_disabled() if capture else nullcontext():
                yield
        except Unavailable as missing:
            if is_promised():
                pytest.fail(str(missing), pytrace=False)
            pytest.skip(str(missing))

    return context


@pytest.fixture(scope="session")
def helm(offered: Offered, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real command."""
    with offered():
        return Helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def audited(offered: Offered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of a file's own that writes down what service accounts do."""
    folder = tmp_path_factory.mktemp("audited")
    with ExitStack() as stack:
        with offered():
            plane = stack.enter_context(
                ControlPlane(folder, scheduler=False, extra_apiserver_args=audit_arguments(folder))
            )
        yield plane


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the shared neighbours: data, certificates, logs."""
    return tmp_path_factory.mktemp("testbed")


@pytest.fixture(scope="session")
def control_plane(offered: Offered, bed: Path) -> Iterator[ControlPlane]:
    """A whole control plane, shared by all tests: keep to your own `namespace`."""
    with ExitStack() as stack:
        with offered():
            started = stack.enter_context(ControlPlane(bed))
        yield started


@pytest.fixture(scope="session")
def kwok(offered: Offered, control_plane: ControlPlane, bed: Path) -> Iterator[Kwok]:
    """Three nodes, `kwok-1` to `kwok-3`, whose pods run at once and use what a test says."""
    with ExitStack() as stack:
        with offered():
            started = Kwok(control_plane, bed)
            stack.callback(started.stop)
            started.start()
            for number in (1, 2, 3):
                started.add_node(f"kwok-{number}")
        yield started


@pytest.fixture(scope="session")
def metrics_server(
    offered: Offered, control_plane: ControlPlane, kwok: Kwok, bed: Path
) -> Iterator[MetricsServer]:
    """What the real HPA controller reads usage from."""
    with ExitStack() as stack:
        with offered():
            started = MetricsServer(control_plane, bed)
            stack.callback(started.stop)
            started.start()
        yield started


@pytest.fixture(scope="session")
def prometheus(offered: Offered, kwok: Kwok, bed: Path) -> Iterator[Prometheus]:
    """Scrapes the shared kwok nodes twice a second: a late one takes less from a window of seconds."""
    with ExitStack() as stack:
        with offered():
            started = Prometheus(bed, kwok=kwok, scrape_interval_seconds=0.5)
            stack.callback(started.stop)
            started.start()
        yield started


@pytest.fixture(scope="session")
def real_node(offered: Offered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    """A real kubelet with containerd and a control plane of its own: keep to your own `real_namespace`."""
    with ExitStack() as stack:
        with offered():
            started = RealNode(tmp_path_factory.mktemp("real-node"))
            stack.callback(started.stop)
            started.start()
        yield started


@pytest.fixture
def real_namespace(real_node: RealNode) -> Iterator[str]:
    """A namespace of a test's own on the real node, deleted afterwards with its pods."""
    with new_namespace(real_node.control_plane) as name:
        yield name


@pytest.fixture
def start_control_plane(offered: Offered, tmp_path: Path) -> Iterator[StartControlPlane]:
    """Starts control planes of a test's own, to be broken at will; takes the options of `ControlPlane`."""
    with ExitStack() as stack:

        def start(**options: Any) -> ControlPlane:
            folder = tmp_path / f"control-plane-{secrets.token_hex(2)}"
            with offered():
                return stack.enter_context(ControlPlane(folder, **options))

        yield start


@pytest.fixture
def start_prometheus(offered: Offered, tmp_path: Path) -> Iterator[StartPrometheus]:
    """Starts Prometheus servers of a test's own; takes the options of `Prometheus`, and a `backfill` text."""
    with ExitStack() as stack:

        def start(backfill: str | None = None, **options: Any) -> Prometheus:
            with offered():
                started = Prometheus(tmp_path / f"prometheus-{secrets.token_hex(2)}", **options)
                stack.callback(started.stop)
                if backfill is not None:
                    started.backfill(backfill)
                started.start()
            return started

        yield start


@pytest.fixture
def start_redis(offered: Offered, tmp_path: Path) -> Iterator[StartRedis]:
    """Starts Redis servers of a test's own; takes the options of `RedisServer`."""
    with ExitStack() as stack:

        def start(**options: Any) -> RedisServer:
            with offered():
                started = RedisServer(tmp_path / f"redis-{secrets.token_hex(2)}", **options)
                stack.callback(started.stop)
                started.start()
            return started

        yield start


@pytest.fixture
def start_redis_cluster(offered: Offered, tmp_path: Path) -> Iterator[StartRedisCluster]:
    """Starts Redis clusters of a test's own; takes the options of `RedisCluster`."""
    with ExitStack() as stack:

        def start(**options: Any) -> RedisCluster:
            with offered():
                started = RedisCluster(tmp_path / f"redis-cluster-{secrets.token_hex(2)}", **options)
                stack.callback(started.stop)
                started.start()
            return started

        yield start


@pytest.fixture
def new_machine(offered: Offered, tmp_path: Path) -> NewMachine:
    """Makes virtual machines with cgroup version 2; takes the options of `Machine`. `run` boots one."""

    def make(**options: Any) -> Machine:
        with offered():
            made = Machine(tmp_path / f"machine-{secrets.token_hex(2)}", **options)
            made.prepare()
        return made

    return make


@contextmanager
def new_namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Make a namespace of a test's own, and delete it afterwards."""
    name = f"test-{secrets.token_hex(4)}"
    control_plane.apply(namespaced(name))
    path = f"/api/v1/namespaces/{name}"
    account = f"{path}/serviceaccounts/default"
    wait_until(lambda: control_plane.api.answers(account), f"the service account of {name}", 60)
    try:
        yield name
    finally:
        control_plane.api.delete(path)


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """A namespace of a test's own, deleted afterwards."""
    with new_namespace(control_plane) as name:
        yield name


@pytest.fixture
def six(control_plane: ControlPlane, kwok: Kwok, namespace: str) -> dict[str, str]:
    """The seed's six pods, made by the real controllers, by letter."""
    return six_pods(control_plane, kwok, namespace=namespace)


@pytest.fixture
def measured(
    control_plane: ControlPlane,
    kwok: Kwok,
    namespace: str,
    six: dict[str, str],
    start_prometheus: StartPrometheus,
) -> Prometheus:
    """A Prometheus that has seen the six for an hour, and goes on scraping them."""
    loads = dict(zip(six.values(), SIX_LOADS, strict=True))
    past = history(control_plane, kwok, namespace, loads, until=time.time())
    server = start_prometheus(backfill=past, kwok=kwok)
    fresh = f'timestamp(container_cpu_usage_seconds_total{{namespace="{namespace}"}}) > time() - 10'
    server.wait_for(fresh, len(six))
    return server
