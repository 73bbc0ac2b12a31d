"""`python -m tests.testbed up` leaves the neighbours running, `node` a real node; `build` builds them.

`image` writes the product's own image, as containerd and Docker read it.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.testbed import (
    ControlPlane,
    Kwok,
    MetricsServer,
    NotInTime,
    Prometheus,
    RealNode,
    Unavailable,
    binary,
)
from tests.testbed.cache import folder, is_promised, say
from tests.testbed.images import BUSYBOX
from tests.testbed.parts import COMPAT, PARTS
from tests.testbed.product import NAME as IMAGE
from tests.testbed.product import write_product_image
from tests.testbed.scenes import SIX_LOADS, history, six_pods


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="start everything and an example workload, until Ctrl-C")
    commands.add_parser("node", help="start a real node with kubelet and containerd, until Ctrl-C")
    build = commands.add_parser("build", help="build what is not built yet")
    names = f"any of: {', '.join(PARTS)}; by default all. Only by name: {', '.join(COMPAT)}"
    build.add_argument("names", nargs="*", metavar="NAME", help=names)
    image = commands.add_parser("image", help="write the product's image as an archive, without an engine")
    image.add_argument("file", nargs="?", default="equipoise.tar", type=Path, help="by default %(default)s")
    args = parser.parse_args()
    try:
        if args.command == "build":
            build_all(args.names)
        elif args.command == "node":
            node_up()
        elif args.command == "image":
            write_image(args.file)
        else:
            up()
    except KeyboardInterrupt:
        return 0
    except (Unavailable, NotInTime) as error:
        say(str(error))
        return 1
    return 0


def build_all(names: list[str]) -> None:
    """Build these parts, or all, and say how long each took.

    Of all, one that this machine cannot have is only told, since the tests that need it are skipped; but
    where it has been promised that the machine can, and for a part that was named, it is an error.
    """
    known = PARTS | COMPAT
    if unknown := sorted(set(names) - set(known)):
        raise Unavailable(f"there is no part called {', '.join(unknown)}; there are: {', '.join(known)}")
    is_strict = bool(names) or is_promised()
    began = time.monotonic()
    for name in names or PARTS:
        before = time.monotonic()
        try:
            found = str(binary(name))
        except Unavailable as missing:
            if is_strict:
                raise
            found = f"not here: {missing}"
        print(f"{name:<26} {time.monotonic() - before:6.1f} s  {found}", flush=True)
    print(f"{'all':<26} {time.monotonic() - began:6.1f} s  {folder()}")


def write_image(file: Path) -> None:
    """Write the image of the tree, and say how large it is and how long that took."""
    began = time.monotonic()
    try:
        size = write_product_image(file).stat().st_size
    except OSError as error:
        raise Unavailable(f"{file}: {error.strerror}") from error
    print(f"{IMAGE}  {size / 2**20:.0f} MiB  {time.monotonic() - began:.1f} s  {file}")


def up() -> None:
    """Start everything with an example workload, and wait for Ctrl-C."""
    work = Path(tempfile.mkdtemp(prefix="equipoise-testbed-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        say("starting the control plane")
        control_plane = stack.enter_context(ControlPlane(work))
        kwok = Kwok(control_plane, work)
        stack.callback(kwok.stop)
        kwok.start()
        for number in (1, 2, 3):
            kwok.add_node(f"kwok-{number}")
        pods = six_pods(control_plane, kwok, namespace="shop")
        loads = dict(zip(pods.values(), SIX_LOADS, strict=True))
        prometheus = Prometheus(work, kwok=kwok)
        stack.callback(prometheus.stop)
        prometheus.backfill(history(control_plane, kwok, "shop", loads, until=time.time()))
        prometheus.start()
        metrics_server = MetricsServer(control_plane, work)
        stack.callback(metrics_server.stop)
        metrics_server.start()
        say("waiting for the first measurements")
        prometheus.wait_for('rate(container_cpu_usage_seconds_total{namespace="shop"}[5s])', count=6)
        metrics_server.wait_for_pods("shop", 6)
        print(_welcome(control_plane, prometheus), flush=True)
        signal.pause()


def node_up() -> None:
    """Start a real node, and wait for Ctrl-C."""
    work = Path(tempfile.mkdtemp(prefix="equipoise-testbed-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, work, ignore_errors=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        say("starting a real node")
        node = RealNode(work)
        stack.callback(node.stop)
        node.start()
        print(_welcome_to_node(node), flush=True)
        signal.pause()


def _welcome_to_node(node: RealNode) -> str:
    kubectl = f"{binary('kubectl')} --kubeconfig {node.control_plane.kubeconfig}"
    return f"""
kubeconfig      {node.control_plane.kubeconfig}
node            {node.name}, at {node.address}; its cgroups are at {node.root}/sys/fs/cgroup
image           {BUSYBOX}

Try, in another terminal:
  {kubectl} run busy --image {BUSYBOX} -- sh -c 'while :; do :; done'
  {kubectl} get pods -o wide

Ctrl-C ends everything."""


def _welcome(control_plane: ControlPlane, prometheus: Prometheus) -> str:
    python = Path(sys.executable)
    return f"""
kubeconfig      {control_plane.kubeconfig}
Prometheus      {prometheus.url}
example         Deployment web in namespace shop, six pods, HPA keda-hpa-web at 70 %, one PDB

Try, in another terminal:
  {binary("kubectl")} --kubeconfig {control_plane.kubeconfig} -n shop get pods,hpa,pdb
  {python.with_name("equipoise")} rotation plan web -n shop --set minPodAge=0s \\
      --kubeconfig {control_plane.kubeconfig} --prometheus-url {prometheus.url}

Ctrl-C ends everything."""


if __name__ == "__main__":
    sys.exit(main())
