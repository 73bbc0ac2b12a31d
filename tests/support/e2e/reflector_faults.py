"""A reflector on a bad wire to a real API server, and a checker that lets no deletion slip.

After each cut the writers pause; then the cache must equal a fresh list by the testbed's own client, and
whatever the listener was told, pod by pod (by UID, since names are taken again), must add up.
"""

import gc
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import urlsplit

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import Client, Reflector
from equipoise.adapters.kubernetes.cache import ChangeType
from equipoise.adapters.kubernetes.client import Limits
from equipoise.adapters.kubernetes.kinds import PODS
from equipoise.adapters.kubernetes.kubeconfig import find_target
from equipoise.adapters.kubernetes.reflector import Timings
from equipoise.core.cluster import Pod
from tests.support.e2e.pod_churn import Churn
from tests.support.e2e.tcp_proxy import Wire
from tests.testbed import Api, ControlPlane, NotInTime, kubeconfig, wait_until

CHANGES_PER_SECOND = 200.0
CHANGES_IN_A_GAP = 200
SILENCE_SECONDS = 2.0
GAP_MAX_SECONDS = 60.0
BEGIN_SECONDS = 60.0
"""What a busy machine may need for the first list, and to agree with it."""
TIMINGS = Timings(
    watch_seconds=(4.0, 8.0),  # short, so that the server ends many by itself too
    silence_seconds=SILENCE_SECONDS,
    retry=Backoff(first_seconds=0.05, delay_max_seconds=0.5),
)
LIMITS = Limits(connect_seconds=SILENCE_SECONDS, read_seconds=SILENCE_SECONDS)

_PLUGINS = (
    "ServiceAccount LimitRanger PodSecurity Priority DefaultTolerationSeconds ResourceQuota RuntimeClass "
    "TaintNodesByCondition ValidatingAdmissionPolicy MutatingAdmissionWebhook ValidatingAdmissionWebhook"
)
LEAN = (
    "--enable-priority-and-fairness=false",
    f"--disable-admission-plugins={','.join(_PLUGINS.split())}",
)
"""Options that make writing a pod cheaper by a quarter, so that a busy machine keeps the pace."""


@contextmanager
def api_server(folder: Path) -> Iterator[ControlPlane]:
    """Start an API server to be broken: nothing else writes to it, and watching is as ever."""
    with ControlPlane(folder, controllers=False, scheduler=False, extra_apiserver_args=LEAN) as control_plane:
        for process in control_plane.processes:
            process.hurry(-5)  # as many changes a second are asked of it as a busy machine can do
        yield control_plane


class Disagreement(AssertionError):  # noqa: N818 - reads as a fact
    """The cache is not the cluster, or the listener was not told what happened."""


class Watching(Reflector[Pod]):
    """The reflector under test; it keeps what ended each of its turns."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.endings: list[str] = []

    def step(self) -> float:
        delay = super().step()
        if self.last_error is not None:
            self.endings.append(str(self.last_error))
        return delay


class Ledger:
    """What the listener was told, pod by pod."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._added: Counter[str] = Counter()
        self._deleted: Counter[str] = Counter()
        self._odd: list[str] = []
        self._seen_at: dict[str, float] = {}

    def note(self, change: ChangeType, old: Pod | None, new: Pod | None) -> None:
        """Listen to the reflector."""
        now = time.monotonic()
        with self._lock:
            if change is ChangeType.DELETED and old is not None:
                self._deleted[old.uid] += 1
            elif change is ChangeType.ADDED and new is not None:
                self._added[new.uid] += 1
                self._seen_at[new.name] = now
            elif old is None or new is None or old.uid != new.uid:
                self._odd.append(f"{change} of {old and old.name} to {new and new.name}")

    def seen_at(self, name: str) -> float | None:
        with self._lock:
            return self._seen_at.get(name)

    @property
    def deletes(self) -> int:
        with self._lock:
            return self._deleted.total()

    def unseen(self, born: set[str]) -> int:
        """Count the pods that came and went without a word to the listener."""
        with self._lock:
            return len(born - self._added.keys())

    def gone(self, born: set[str], listed: set[str]) -> int:
        """Count the pods that were ever known, to the writers or to us, and are no more."""
        with self._lock:
            return len((born | self._added.keys()) - listed)

    def complaints(self, listed: set[str]) -> list[str]:
        """Say what does not add up, when exactly these UIDs are there."""
        with self._lock:
            added, deleted = self._added.keys(), self._deleted.keys()
            faults = {
                "deletions missed": (added - listed) - deleted,
                "deletions told twice": {uid for uid, n in self._deleted.items() if n > 1},
                "additions told twice": {uid for uid, n in self._added.items() if n > 1},
                "reported deleted, yet there": deleted & listed,
                "deleted without having been added": deleted - added,
                "there, yet never reported": listed - added,
                "odd changes": set(self._odd),
            }
        return [f"{len(found)} {what} ({min(found)})" for what, found in faults.items() if found]


@dataclass(frozen=True)
class Cut:
    """What one cut did."""

    kind: str
    gap_seconds: float
    pace: float
    """Changes in the second before it."""
    changes: int
    deletes_made: int
    deletes_reported: int
    unseen: int
    """Pods that came and went within a gap that ended with a new list: nobody can report those."""
    lists: int


class Turbulence:
    """One reflector, its wire, its writers and its ledger."""

    def __init__(
        self,
        control_plane: ControlPlane,
        wire: Wire,
        churn: Churn,
        reflector: Watching,
        ledger: Ledger,
        agree_seconds: float,
    ) -> None:
        self.control_plane = control_plane
        self.wire = wire
        self.churn = churn
        self.reflector = reflector
        self.ledger = ledger
        self._agree_seconds = agree_seconds
        self._markers = 0
        self._before = (0, 0, 0, 0, 0)
        self._cuts: dict[str, Callable[[], None]] = {
            "reset": self._reset,
            "killed": self._kill,
            "silent": self._silence,
            "expired (410)": self._expire,
        }

    @property
    def kinds(self) -> list[str]:
        return list(self._cuts)

    def cut(self, kind: str) -> Cut:
        """Wait for the pace, cut, and return when all agrees again."""
        pace = self.churn.wait_for_pace()
        endings = len(self.reflector.endings)
        began_at = time.monotonic()
        self._cuts[kind]()
        seen_at = self._wait_for_marker()
        changes, made, reported, unseen, lists = self.agree()
        if "410" in kind and not (lists and any("410" in e for e in self.reflector.endings[endings:])):
            raise Disagreement(f"no 410 was met, but {self.reflector.endings[endings:]}")
        if unseen and not lists:
            raise Disagreement(f"a watch that was resumed skipped {unseen} pods")
        return Cut(kind, seen_at - began_at, pace, changes, made, reported, unseen, lists)

    def agree(self, seconds: float = 0.0) -> tuple[int, ...]:
        """Pause the writers; wait until cache, ledger and a fresh list say the same; go on.

        Gives what happened since the last time: changes, pods gone, deletions reported, pods that came and
        went unseen, lists.
        """
        self.churn.pause()
        listed = {
            (item["metadata"]["namespace"], item["metadata"]["name"]): (
                str(item["metadata"]["uid"]),
                str(item["metadata"]["resourceVersion"]),
            )
            for item in self.control_plane.api.items(self.churn.pods_path)
        }
        try:
            wait_until(
                lambda: not self._differences(listed),
                "the cache to equal a fresh list",
                seconds or self._agree_seconds,
            )
        except NotInTime as late:
            raise Disagreement(f"{late}: {'; '.join(self._differences(listed))}") from None
        now = (
            self.churn.changes,
            self.ledger.gone(self.churn.born, {uid for uid, _ in listed.values()}),
            self.ledger.deletes,
            self.ledger.unseen(self.churn.born),
            self.reflector.counters.lists,
        )
        since = tuple(after - before for after, before in zip(now, self._before, strict=True))
        self._before = now
        self.churn.resume()
        return since

    def _differences(self, listed: dict[tuple[str, str], tuple[str, str]]) -> list[str]:
        records = self.reflector.cache.records()
        cached = {(pod.namespace, pod.name): (pod.uid, pod.resource_version) for pod in records}
        found = self.ledger.complaints({uid for uid, _ in listed.values()})
        if cached != listed:
            kinds = {
                "missing": listed.keys() - cached.keys(),
                "too many": cached.keys() - listed.keys(),
                "old": {key for key in cached.keys() & listed.keys() if cached[key] != listed[key]},
            }
            told = ", ".join(f"{len(keys)} {what}" for what, keys in kinds.items() if keys)
            found.insert(0, f"of {len(listed)} pods the cache has {told}")
        return found

    def _mark(self) -> None:
        """Create one pod and delete one, within the gap."""
        self._markers += 1
        self.churn.create(f"marker-{self._markers}")
        if self._markers > 1:
            self.churn.delete(f"marker-{self._markers - 1}")

    def _wait_for_marker(self) -> float:
        name = f"marker-{self._markers}"
        return wait_until(lambda: self.ledger.seen_at(name), f"{name} to be seen", GAP_MAX_SECONDS)

    def _reset(self) -> None:
        self.wire.reset()
        self._mark()

    def _kill(self) -> None:
        self.control_plane.kill_apiserver()
        self.control_plane.restart_apiserver()
        self._mark()

    def _silence(self) -> None:
        self.wire.freeze()
        self._mark()
        self._wait_for_changes()
        self.wire.open()

    def _expire(self) -> None:
        """Keep the reflector away until nobody remembers the version that it will ask for."""
        self.wire.close()
        self._mark()
        self._wait_for_changes()
        self.control_plane.kill_apiserver()
        self.control_plane.restart_apiserver()
        self.control_plane.compact_etcd()
        self.wire.open()

    def _wait_for_changes(self) -> None:
        enough = self.churn.changes + CHANGES_IN_A_GAP
        wait_until(lambda: self.churn.changes >= enough, f"{CHANGES_IN_A_GAP} changes in the gap", 60)


def shuffled(kinds: Iterable[str], each: int, seed: int) -> list[str]:
    """Give every kind of cut so many times, in a random order."""
    order = [kind for kind in kinds for _ in range(each)]
    random.Random(seed).shuffle(order)
    return order


def run(
    control_plane: ControlPlane,
    folder: Path,
    choose: Callable[[list[str]], Iterable[str]],
    *,
    seed: int,
    say: Callable[[str], object] = str,
    reflector_class: type[Watching] = Watching,
    agree_seconds: float = 30,
    begin_seconds: float = BEGIN_SECONDS,
) -> list[Cut]:
    """Cut as often as `choose` says, given the kinds of cuts; raise at the first disagreement."""
    namespace = f"churn-{seed}-{reflector_class.__name__.lower()}"
    address = urlsplit(control_plane.server)
    ledger, done = Ledger(), list[Cut]()
    with (
        Wire(str(address.hostname), int(address.port or 443)) as wire,
        closing(Api(control_plane.server, control_plane.ca, client=control_plane.admin)) as api,
        Churn(api, namespace, changes_per_second=CHANGES_PER_SECOND, seed=seed) as churn,
    ):
        path = kubeconfig.write(
            folder / f"{namespace}.kubeconfig",
            f"https://127.0.0.1:{wire.port}",
            control_plane.ca,
            kubeconfig.user_of(control_plane.admin),
        )
        client = Client(find_target(str(path)), limits=LIMITS)
        reflector = reflector_class(
            client, PODS, namespace=namespace, on_change=ledger.note, timings=TIMINGS, page_size=100
        )
        reflector.start()
        try:
            turbulence = Turbulence(control_plane, wire, churn, reflector, ledger, agree_seconds)
            churn.wait_for_pace()
            wait_until(reflector.synced.is_set, "the first list", BEGIN_SECONDS)
            turbulence.agree(max(agree_seconds, begin_seconds))
            for kind in choose(turbulence.kinds):
                cut = turbulence.cut(kind)
                done.append(cut)
                say(
                    f"cut {len(done):3}: {cut.kind:13} gap {cut.gap_seconds:5.2f} s, {cut.pace:3.0f} "
                    f"changes/s before it, {cut.deletes_made} deletes made, {cut.deletes_reported} reported"
                )
        finally:
            assert reflector.stop(60), "the reflector has not ended"
            client.close()
            gc.collect()  # sockets in cycles belong to this run, not to whoever comes next
    return done


def table(cuts: Iterable[Cut]) -> str:
    """Lay the cuts out by kind, as Markdown."""
    by_kind: dict[str, list[Cut]] = {}
    for cut in cuts:
        by_kind.setdefault(cut.kind, []).append(cut)
        by_kind.setdefault("all", []).append(cut)
    head = (
        "| cut | times | gap min s | median s | max s | changes | changes/s before | deletes made "
        "| reported | came and went unseen | new lists |"
    )
    lines = [head, "|---" * 11 + "|"]
    for kind in sorted(by_kind, key=lambda name: (name == "all", name)):
        some = by_kind[kind]
        gaps = [cut.gap_seconds for cut in some]
        lines.append(
            f"| {kind} | {len(some)} | {min(gaps):.2f} | {median(gaps):.2f} | {max(gaps):.2f} "
            f"| {sum(cut.changes for cut in some)} | {median(cut.pace for cut in some):.0f} "
            f"| {sum(cut.deletes_made for cut in some)} | {sum(cut.deletes_reported for cut in some)} "
            f"| {sum(cut.unseen for cut in some)} | {sum(cut.lists for cut in some)} |"
        )
    return "\n".join(lines)
