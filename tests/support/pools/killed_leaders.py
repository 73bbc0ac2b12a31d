"""Leaders that are killed at random points, one after the other, while pods come and go and calls are served.

A leader is a process that runs the production loop as fast as it can. It is ended by SIGKILL, or stopped
until another leads and then let go on. After every kill the keys must be sound at once: there is no state in
between. At the end one leader is left in peace, and everything has to come right by itself.
"""

import json
import multiprocessing
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis import Redis

from equipoise.adapters.redis import RedisPools
from equipoise.core.cluster import Pod
from equipoise.core.errors import WorldFailed
from equipoise.pools.invariants import violations
from equipoise.pools.policy import read_policy, tiers_for_scripts
from equipoise.pools.registration import RegistrationRule
from tests.support.pools.fleet import World, make_loop, pod
from tests.support.pools.worlds import config

LEASE_SECONDS = 1.0
PODS_MAX = 24
BOUND_SECONDS = 120.0
TURNS_MIN = 6
"""So many calls begin or end beside each leader, however slow the machine is."""
TARGETS = ((6, 6, 6), (8, 4, 6), (4, 8, 6), (5, 5, 9))
_FORK = multiprocessing.get_context("fork")


@dataclass
class Report:
    """What came of it."""

    kills: int = 0
    stops: int = 0
    empty_lists: int = 0
    forgotten_scripts: int = 0
    replaced: int = 0
    served: int = 0
    broken: list[str] = field(default_factory=list)
    given_twice: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    late_deeds: list[str] = field(default_factory=list)
    """What a leader did after another had taken over."""


class Fleet:
    """Kubernetes' list, in a file that every leader reads."""

    def __init__(self, file: Path, chance: random.Random, report: Report) -> None:
        self.file = file
        self.truth = file.with_name("truth.json")
        self.chance = chance
        self.report = report
        self.uids: dict[str, str] = {f"a-{number}": f"u-{number}" for number in range(18)}
        self.leaving: set[str] = set()
        self.count = 100
        self.write()

    def write(self, *, is_empty: bool = False) -> None:
        rows = [] if is_empty else [[name, uid, name in self.leaving] for name, uid in self.uids.items()]
        _replace(self.file, rows)
        _replace(self.truth, self.uids)

    def change(self) -> None:
        """Let somebody come, go or be replaced; now and then the list is empty for a while."""
        for name in list(self.leaving):
            del self.uids[name]
        self.leaving.clear()
        self.count += 1
        dice = self.chance.random()
        if dice < 0.3 and len(self.uids) < PODS_MAX:
            free = [n for n in range(PODS_MAX) if f"a-{n}" not in self.uids]
            self.uids[f"a-{self.chance.choice(free)}"] = f"u-{self.count}"
        elif dice < 0.6 and len(self.uids) > 12:
            self.leaving.add(self.chance.choice(sorted(self.uids)))
        elif dice < 0.8:
            self.uids[self.chance.choice(sorted(self.uids))] = f"u-{self.count}"
            self.report.replaced += 1
        is_empty = dice > 0.93
        self.report.empty_lists += is_empty
        self.write(is_empty=is_empty)


def _replace(file: Path, document: object) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(document))
    fresh.rename(file)


def lead(url: str, file: Path, epoch: int, diary: Path) -> None:
    """Be a leader, until somebody ends us; the diary tells what was done."""
    with Redis.from_url(url, decode_responses=True) as client, diary.open("a", buffering=1) as said:
        pools = RedisPools(client, "voice", url, lease_seconds=LEASE_SECONDS, read_tiers=tiers_for_scripts)
        world = World(lead=epoch)

        def is_gone(name: str, uid: str) -> bool:
            return bool(json.loads(file.with_name("truth.json").read_text()).get(name) != uid)

        rule = RegistrationRule(missing_seconds=0.5)
        loop = make_loop(world, pools, interval_seconds=0.2, is_gone=is_gone, rule=rule)
        while True:
            world.listed = [_pod(*row) for row in json.loads(file.read_text())]
            world.records.clear()
            try:
                report = loop.cycle(time.monotonic())
            except WorldFailed as error:
                said.write(json.dumps({"failed": str(error)}) + "\n")
                time.sleep(0.05)
                continue
            results = [outcome.result for outcome in report.outcomes]
            codes = [decision.reason.code.value for decision in report.decisions]
            said.write(json.dumps({"epoch": epoch, "results": results, "codes": codes}) + "\n")


def _pod(name: str, uid: str, is_leaving: bool) -> Pod:
    return pod(name, uid, deletion_at=1.0 if is_leaving else None)


def storm(url: str, folder: Path, kills: int, seed: int = 1) -> Report:
    """Kill so many leaders; then leave one in peace, and look at what is left."""
    chance = random.Random(seed)
    report = Report()
    fleet = Fleet(folder / "list.json", chance, report)
    with Redis.from_url(url, decode_responses=True) as client:
        client.flushall()
        client.set("voice:tier:config", json.dumps(config(gold=6, silver=6, basic=6)))
        pools = RedisPools(
            client,
            "voice",
            url,
            lease_seconds=LEASE_SECONDS,
            record_seconds=LEASE_SECONDS,
            read_tiers=tiers_for_scripts,
        )
        callers = Callers(pools, chance, report)
        stopped: tuple[Any, Path] | None = None
        epoch = 0
        while report.kills < kills:
            epoch += 1
            process, diary = _start(url, fleet.file, epoch, folder)
            _until(lambda diary=diary: diary.exists() and diary.stat().st_size > 0)
            if stopped is not None:
                _let_go_on(*stopped, report)
                stopped = None
            end, turns = time.monotonic() + chance.random() * 0.1, 0
            while turns < TURNS_MIN or time.monotonic() < end:
                callers.turn()
                turns += 1
            _change(client, pools, fleet, chance, report)
            if chance.random() < 0.1:
                os.kill(process.pid, signal.SIGSTOP)
                stopped = (process, diary)
                report.stops += 1
                continue
            process.kill()
            process.join()
            report.kills += 1
            report.broken += _broken(pools)
        if stopped is not None:
            _end(stopped[0])
        _settle(url, pools, fleet, callers, folder, epoch + 1)
    return report


class Callers:
    """Calls of ours, beside the leaders; an exclusive pod must never serve two at once."""

    def __init__(self, pools: RedisPools, chance: random.Random, report: Report) -> None:
        self.pools = pools
        self.chance = chance
        self.report = report
        self.held: dict[str, tuple[str, str]] = {}
        self.count = 0

    def turn(self) -> None:
        """Begin a call, or end one."""
        if self.held and self.chance.random() < 0.5:
            self.end(self.chance.choice(sorted(self.held)))
            return
        self.count += 1
        call = f"call-{self.count}"
        answer = self.pools.allocate(call)
        if answer.code != "Allocated":
            return
        keys = self.pools.snapshot().pods.get(answer.pod)
        if keys is None:
            return  # a leader has taken the pod out since, and its call with it
        uid = keys.uid
        for other, (name, known) in list(self.held.items()):
            if name == answer.pod and answer.tier != "basic":
                # A pod that was replaced has no calls any more, and a lease can end: its caller is told so.
                is_over = self.pools.heartbeat(other).code != "Renewed" or known != uid
                if not is_over:
                    self.report.given_twice.append(f"{name} to {call} while {other} has it")
                self.held.pop(other, None)
        self.held[call] = (answer.pod, uid)
        self.report.served += 1

    def end(self, call: str) -> None:
        self.held.pop(call)
        self.pools.release(call)


def _change(client: Any, pools: RedisPools, fleet: Fleet, chance: random.Random, report: Report) -> None:
    fleet.change()
    if chance.random() < 0.3:
        gold, silver, basic = chance.choice(TARGETS)
        pools.set_config(json.dumps(config(gold=gold, silver=silver, basic=basic)), pools.snapshot().version)
    if chance.random() < 0.2:
        client.script_flush()
        report.forgotten_scripts += 1


def _start(url: str, file: Path, epoch: int, folder: Path) -> tuple[Any, Path]:
    diary = folder / f"leader-{epoch}.json"
    process = _FORK.Process(target=lead, args=(url, file, epoch, diary), daemon=True)
    process.start()
    return process, diary


def _let_go_on(process: Any, diary: Path, report: Report) -> None:
    """Wake a leader whose turn is over: whatever it asks for from now on is refused."""
    before = len(diary.read_text().splitlines())
    os.kill(process.pid, signal.SIGCONT)
    # The first cycle after the wake may end what was begun before; those after it are late.
    _until(lambda: len(diary.read_text().splitlines()) >= before + 3)
    _end(process)
    for line in diary.read_text().splitlines()[before + 1 :]:
        try:
            deeds = [result for result in json.loads(line).get("results", ()) if result != "Fenced"]
        except ValueError:
            continue  # its last line, cut by the kill
        report.late_deeds += deeds


def _end(process: Any) -> None:
    process.kill()
    process.join()


def _broken(pools: RedisPools) -> list[str]:
    seen = pools.snapshot(is_thorough=True)
    return [each.detail for each in violations(read_policy(seen.config, "config"), seen)]


def _settle(url: str, pools: RedisPools, fleet: Fleet, callers: Callers, folder: Path, epoch: int) -> None:
    """End all calls, leave a leader in peace, and wait until both lists agree and everybody is free."""
    report = callers.report
    for call in list(callers.held):
        callers.end(call)
    fleet.change()
    for name in fleet.leaving:
        del fleet.uids[name]
    fleet.leaving.clear()
    fleet.write()
    process, _ = _start(url, fleet.file, epoch, folder)
    try:
        end = time.monotonic() + BOUND_SECONDS
        while (missing := _unsettled(pools, fleet)) and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        _end(process)
    report.missing = missing
    report.broken += _broken(pools)


def _unsettled(pools: RedisPools, fleet: Fleet) -> list[str]:
    """Name the pods that only one of the lists has, or that are not free."""
    seen = pools.snapshot()
    free = {name for pool in seen.pools for name, calls in pool.available.items() if calls == 0}
    known = {name: seen.pods[name].uid for pool in seen.pools for name in pool.assigned}
    odd = fleet.uids.items() ^ known.items()
    return sorted({name for name, _ in odd} | (known.keys() - free))


def _until(condition: Any) -> None:
    end = time.monotonic() + BOUND_SECONDS
    while not condition():
        assert time.monotonic() < end, "a leader did not get on"
        time.sleep(0.002)
