"""Our own programs, one script at a time. Each keeps its own view of the tiers, which may be old."""

import json
from typing import Any

from equipoise.adapters.redis.scripts import Scripts
from equipoise.adapters.redis.snapshot import PAGE, SnapshotPage, decode_pages
from equipoise.core.decision import MovePod
from equipoise.pools.decide import busy_excess, decide
from equipoise.pools.observe import observe
from equipoise.pools.policy import encode_tiers, read_policy
from tests.support.explorer.machine import PREFIX, Local

KEY = f"{PREFIX}:tier:config"
HOUR_MS = "3600000"
LATER = "later, "
Known = tuple[str, str]


def known(client: Any) -> Known:
    """Read the tiers as a program does: the text, and what the scripts need of it."""
    text = client.get(KEY)
    return text, encode_tiers(read_policy(text, KEY))


def run(client: Any, writer: str, view: Known, *arguments: str) -> list[Any]:
    """Send one script."""
    return Scripts(client, KEY, "test").run(writer, [*view, *arguments])


class _Program:
    can_lose_answers = True

    def __init__(self, name: str, *start: Any) -> None:
        self.name = name
        self.start: Local = ("look", *start)

    def unheard(self, local: Local) -> Local:
        return local

    def needs_rest(self, local: Local) -> bool:
        del local
        return False

    def is_hurrying(self, local: Local) -> bool:
        del local
        return False

    def serving(self, local: Local) -> tuple[str, str] | None:
        del local
        return None


class Caller(_Program):
    """Allocates, serves, releases."""

    def __init__(self, name: str, tier: str = "", call: str = "") -> None:
        super().__init__(name)
        self.tier = tier
        self.call = call or name

    def step(self, local: Local, client: Any) -> Local:
        match local:
            case ("look", *rest):
                return ("allocate", known(client)) if not rest else (rest[0], known(client), *rest[1:])
            case ("allocate", view):
                code, *rest = run(client, "allocate", view, self.call, HOUR_MS, HOUR_MS, self.tier)
                if code == "ConfigChanged":
                    return ("look",)
                return ("release", view, rest[0]) if code == "Allocated" else ()
            case ("release" | "release again", view, pod):
                code, *rest = run(client, "release", view, self.call, pod)
                return ("look", "release again", pod) if code == "ConfigChanged" else ()
        raise AssertionError(local)

    def unheard(self, local: Local) -> Local:
        # Whoever has asked for a release serves no more.
        return ("release again", *local[1:]) if local[0] == "release" else local

    def serving(self, local: Local) -> tuple[str, str] | None:
        return (local[2], self.call) if local[:1] == ("release",) else None


class Rebalancer(_Program):
    """A leader's cycle: looks, plans with the real planner, moves one pod after the other."""

    def __init__(self, name: str, epoch: str = "", *, marks_busy: bool = False) -> None:
        super().__init__(name)
        self.epoch = epoch
        self.marks_busy = marks_busy

    def step(self, local: Local, client: Any) -> Local:
        if local[0] == "look":
            view = known(client)
            words = [*view, str(PAGE), "0"]
            return self._planned(view, Scripts(client, KEY, "test").read("snapshot", words))
        _, view, moves = local
        pod, source, destination = moves[0]
        mark = "1" if self.marks_busy else ""
        run(client, "move", view, pod, source, destination, self.epoch, "", mark)
        return ("move", view, moves[1:]) if moves[1:] else ()

    def _planned(self, view: Known, answer: list[Any]) -> Local:
        seen = decode_pages(PREFIX, [SnapshotPage(*answer)])
        policy = read_policy(seen.config, KEY)
        observation = observe(policy, seen)
        moves = [
            (action.pod, action.source, action.destination)
            for action in decide(policy, observation).decision.actions
            if isinstance(action, MovePod)
        ]
        if self.marks_busy:
            moves += [(pod.name, source, to) for pod, source, to in busy_excess(policy, observation)]
        return ("move", view, tuple(moves)) if moves else ()


class Once(_Program):
    """Sends these scripts one after the other, whatever they answer; looks again when the tiers changed."""

    def __init__(self, name: str, *calls: tuple[str, ...]) -> None:
        super().__init__(name, calls)

    def step(self, local: Local, client: Any) -> Local:
        if local[0] == "look":
            return (local[1][0][0], known(client), local[1])
        _, view, calls = local
        code, *_ = run(client, calls[0][0].removeprefix(LATER), view, *calls[0][1:])
        if code == "ConfigChanged":
            return ("look", calls)
        return (calls[1][0], view, calls[1:]) if calls[1:] else ()

    def needs_rest(self, local: Local) -> bool:
        return bool(local[0].startswith(LATER))


class Configurer(_Program):
    """Changes the targets over the version that it has read."""

    def __init__(self, name: str, **targets: int) -> None:
        super().__init__(name)
        self.targets = targets

    def step(self, local: Local, client: Any) -> Local:
        if local[0] == "look":
            return ("set", known(client)[0])
        document = json.loads(client.get(KEY))
        for tier, target in self.targets.items():
            document["tiers"][tier]["target"] = target
        run(client, "set_config", (local[1], ""), json.dumps(document))
        return ()


class Sweeps(Once):
    """A sweep that is asked for again comes right after the first: no lease's time has passed between."""

    def unheard(self, local: Local) -> Local:
        word, view, ((writer, pod, epoch, _), *rest) = local
        return (word, view, ((writer, pod, epoch, HOUR_MS), *rest))


def sweeps(name: str, pod: str) -> Sweeps:
    """Two sweeps, a lease apart, and one of the many between them, when nobody was halfway through a call."""
    return Sweeps(
        name,
        ("recover", pod, "", HOUR_MS),
        (f"{LATER}recover", pod, "", HOUR_MS),
        ("recover", pod, "", "0"),
    )
