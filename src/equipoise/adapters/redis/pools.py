"""The port `Pools` on Redis. Each call sends its version of the tiers, which the script checks."""

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from redis import Redis, RedisCluster

from equipoise.adapters.redis.connect import eviction_of
from equipoise.adapters.redis.scripts import IN_DOUBT, Request, Scripts, WrongKeyType, certain, explained
from equipoise.adapters.redis.snapshot import PoolsReader, version_of
from equipoise.core.decision import (
    MovePod,
    RegisterPod,
    RegistrationAction,
    ResumePod,
    SuspendPod,
    UnregisterPod,
)
from equipoise.core.errors import BadInput, EquipoiseError, WorldFailed
from equipoise.core.pools import PoolAnswer, PoolCode, PoolsSnapshot
from equipoise.ports import Unanswered

LEASE_SECONDS = 900.0
RECORD_SECONDS = 3600.0
TRIES = 5
"""How often a call is repeated because the tiers changed meanwhile."""
WRITERS: dict[type[RegistrationAction], str] = {
    RegisterPod: "register",
    UnregisterPod: "unregister",
    SuspendPod: "drain",
    ResumePod: "undrain",
}
CAUSES: dict[type[RegistrationAction], tuple[str]] = {SuspendPod: ("unready",), ResumePod: ("unready",)}
"""The causes of our own drains; a user's drain has another one, and we do not undo it."""
DONE: dict[str, set[PoolCode]] = {
    "allocate": {PoolCode.ALLOCATED},
    "release": {PoolCode.RELEASED, PoolCode.UNKNOWN_CALL},
    "heartbeat": {PoolCode.RENEWED},
    "drain": {PoolCode.DRAINED},
    "undrain": {PoolCode.UNDRAINED, PoolCode.NOT_DRAINING},
    "register": {PoolCode.REGISTERED, PoolCode.REPLACED, PoolCode.KNOWN},
    "unregister": {PoolCode.UNREGISTERED, PoolCode.NOT_THERE},
    "move": {PoolCode.MOVED, PoolCode.ALREADY_THERE, PoolCode.PENDING},
    "recover": {PoolCode.RECOVERED, PoolCode.HEALTHY, PoolCode.SUSPECTED, PoolCode.WAITING},
    "fsck": {PoolCode.MENDED, PoolCode.SOUND},
    "set_config": {PoolCode.STORED},
}
"""Answers that are true of a change, whichever of two attempts made it. Any other is a *no* to the last
attempt alone: an earlier one that was not answered may have been done, or may still be."""


class RedisPools:
    """Pods in tiers under one prefix."""

    def __init__(
        self,
        client: "Redis | RedisCluster",
        prefix: str,
        address: str = "redis",
        *,
        read_tiers: Callable[[str | None, str], str],
        lease_seconds: float = LEASE_SECONDS,
        record_seconds: float = RECORD_SECONDS,
        is_dry: bool = False,
    ) -> None:
        """Use a connection; in a dry run, the writers return their answers without writing."""
        self._client: Any = client
        self._prefix = prefix
        self._address = address
        self._key = f"{prefix}:tier:config"
        self._read_tiers = read_tiers
        self._scripts = Scripts(client, self._key, address)
        self._reader = PoolsReader(client, prefix, self._scripts, address)
        self._spans = [str(int(seconds * 1000)) for seconds in (lease_seconds, record_seconds)]
        self._is_dry = is_dry
        self._config: tuple[str, str] | None = None

    def close(self) -> None:
        self._client.close()

    def eviction(self) -> str:
        """Return why the server may lose keys of live calls, and the remedy; empty where they are safe."""
        return eviction_of(self._client, self._address)

    def check_config(self) -> None:
        """Return the present tiers; raise where they are missing or malformed."""
        self._read_tiers(self._read_config(), self._key)

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> PoolsSnapshot:
        tiers, pods = self._reader.scan() if is_thorough else ([], [])
        pods = list(dict.fromkeys([*pods, *also]))
        for _ in range(TRIES):
            current = self._current_config() if not is_thorough else self._current_config_or_empty()
            snapshot = self._reader.read(current, tiers, pods)
            if snapshot is not None and (
                (snapshot.config or "") == current[0] or (is_thorough and not current[1])
            ):
                return snapshot
            self._config = None
        raise WorldFailed(f"{self._address}: {self._key} changes faster than it can be read")

    def move(
        self, moves: Sequence[MovePod], version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> list[PoolAnswer]:
        """Move idle pods; return one answer for each, and move none twice."""
        current = self._current_config()
        if version_of(current[0]) != version:
            self._config = None
            current = self._current_config()
        if version_of(current[0]) != version:
            return [PoolAnswer(PoolCode.CONFIG_CHANGED, move.pod) for move in moves]
        mark = "1" if marks_busy else ""
        calls = [
            [*current, move.pod, move.source, move.destination, _epoch(epoch), move.uid, mark]
            for move in moves
        ]
        requests = [Request() for _ in moves]
        replies = self._scripts.run_all("move", calls, requests)
        answers = []
        for move, reply, request in zip(moves, replies, requests, strict=True):
            try:
                code, *rest = _expect_answer(reply)
                answer = PoolAnswer(PoolCode(code), move.pod, move.destination, "".join(rest[:1]))
                answers.append(self._certainly("move", answer, request))
            except EquipoiseError as error:
                answers.append(failed(error, move.pod))
        return answers

    def register(self, pod: str, uid: str, epoch: int | None, metadata: str = "") -> PoolAnswer:
        return self._about_pod("register", pod, uid, _epoch(epoch), metadata)

    def unregister(self, pod: str, uid: str, epoch: int | None) -> PoolAnswer:
        return self._about_pod("unregister", pod, uid, _epoch(epoch))

    def allocate(self, call: str, tier: str = "") -> PoolAnswer:
        return self._about_call("allocate", call, *self._spans, tier)

    def release(self, call: str, pod: str = "") -> PoolAnswer:
        return self._about_call("release", call, pod)

    def heartbeat(self, call: str) -> PoolAnswer:
        return self._about_call("heartbeat", call, *self._spans)

    def drain(self, pod: str, uid: str = "") -> PoolAnswer:
        return self._about_pod("drain", pod, uid)

    def undrain(self, pod: str, uid: str = "") -> PoolAnswer:
        return self._about_pod("undrain", pod, uid)

    def recover(self, pods: Sequence[str], epoch: int | None) -> list[PoolAnswer]:
        return self._about_pods("recover", pods, [[_epoch(epoch), self._spans[0]]] * len(pods))

    def reconcile(self, actions: Sequence[RegistrationAction], epoch: int | None) -> list[PoolAnswer]:
        """Register, unregister, suspend and resume pods in this order, in as few round trips as possible."""
        answers: list[PoolAnswer] = []
        for writer, group in groupby(actions, key=lambda action: WRITERS[type(action)]):
            parts = list(group)
            arguments = [[part.uid, *CAUSES.get(type(part), ()), _epoch(epoch)] for part in parts]
            if writer == "register":
                arguments = [[*words, ""] for words in arguments]
            answers += self._about_pods(writer, [part.pod for part in parts], arguments)
        return answers

    def repair(self, pod: str, epoch: int | None) -> PoolAnswer:
        return self._about_pod("fsck", pod, _epoch(epoch))

    def forget_odd_epoch(self) -> PoolAnswer:
        """Remove an invalid epoch; a valid one stays."""
        return self._about_pod("fsck", "", "")

    def set_config(self, text: str, version: str, tiers_to_empty: Sequence[str] = ()) -> PoolAnswer:
        self._config = None
        request = Request()
        with certain(request):
            before = self._read_config()
            if before == text:
                # Also our own write, whose answer was lost, and which was then asked for again. It is written
                # once more, since a replica could say the same of what its primary has forgotten.
                tiers_to_empty = ()
            elif version_of(before) != version:
                return PoolAnswer(PoolCode.CONFIG_CHANGED)
            words = [before or "", self._dry(""), text, *tiers_to_empty]
            code, *rest = self._scripts.run("set_config", words, request)
            if code == PoolCode.CONFIG_CHANGED and self._read_config() == text:
                code = PoolCode.STORED.value
        detail = version_of(text) if code == PoolCode.STORED else ""
        answer = PoolAnswer(PoolCode(code), tier=rest[0] if rest else "", detail=detail)
        return self._certainly("set_config", answer, request)

    def _about_pod(
        self, writer: str, pod: str, *arguments: str, request: Request | None = None
    ) -> PoolAnswer:
        request = request or Request()
        return self._answer(writer, pod, self._run(writer, request, pod, *arguments), request)

    def _about_pods(
        self, writer: str, pods: Sequence[str], arguments: Sequence[Sequence[str]]
    ) -> list[PoolAnswer]:
        """Run a writer for many pods; who found another config is asked again alone, with the new one."""
        try:
            text, tiers = self._current_config()
        except EquipoiseError as error:
            return [failed(error, pod) for pod in pods]  # who was asked for before is told all the same
        calls = [[text, self._dry(tiers), pod, *words] for pod, words in zip(pods, arguments, strict=True)]
        requests = [Request() for _ in pods]
        replies = self._scripts.run_all(writer, calls, requests)
        answers = []
        for pod, words, reply, request in zip(pods, arguments, replies, requests, strict=True):
            try:
                answered = _expect_answer(reply)
                if answered[0] == PoolCode.CONFIG_CHANGED:
                    self._config = None
                    answers.append(self._about_pod(writer, pod, *words, request=request))
                else:
                    answers.append(self._answer(writer, pod, answered, request))
            except EquipoiseError as error:
                answers.append(failed(error, pod))
        return answers

    def _about_call(self, writer: str, call: str, *arguments: str) -> PoolAnswer:
        request = Request()
        code, pod, *rest = [*self._run(writer, request, call, *arguments), ""]
        return self._answer(writer, pod, [code, *rest], request)

    def _answer(self, writer: str, pod: str, answered: Sequence[str], request: Request) -> PoolAnswer:
        """Return a script's answer: a code, then a tier and a detail where it has them."""
        code, tier, detail = [*answered, "", ""][:3]
        return self._certainly(writer, PoolAnswer(PoolCode(code), pod, tier, detail), request)

    def _certainly(self, writer: str, answer: PoolAnswer, request: Request) -> PoolAnswer:
        """Return an answer that is true; a *no* to a request in doubt is none."""
        if request.is_in_doubt and answer.code not in DONE[writer]:
            raise Unanswered(f"{self._address}: {IN_DOUBT}; the second attempt answered {answer.code.value}")
        return answer

    def _run(self, writer: str, request: Request, *arguments: str) -> list[str]:
        with certain(request):
            for _ in range(TRIES):
                text, tiers = self._current_config()
                answer = self._scripts.run(writer, [text, self._dry(tiers), *arguments], request)
                if answer[0] != PoolCode.CONFIG_CHANGED:
                    return answer
                self._config = None
            return answer

    def _dry(self, tiers: str) -> str:
        return f"{tiers}dry" if self._is_dry else tiers

    def _current_config(self) -> tuple[str, str]:
        """Return the cached config, and its tiers in the form that the scripts read."""
        current = self._config  # read once: another thread may clear it at any time
        if current is None:
            text = self._read_config()
            current = self._config = (text or "", self._read_tiers(text, self._key))
        return current

    def _current_config_or_empty(self) -> tuple[str, str]:
        """Return an empty config where it is missing or malformed, so that the keys can still be read."""
        try:
            return self._current_config()
        except (BadInput, WrongKeyType):
            return ("", "")

    def _read_config(self) -> str | None:
        with explained(self._address):
            text: str | None = self._client.get(self._key)
        return text


def failed(error: EquipoiseError, pod: str) -> PoolAnswer:
    """Return the answer for one of many that failed: what is known of the others is not lost with it."""
    code = PoolCode.UNANSWERED if isinstance(error, Unanswered) else PoolCode.FAILED
    if isinstance(error, WrongKeyType):
        code = PoolCode.WRONG_TYPE
    return PoolAnswer(code, pod, detail=str(error))


def _expect_answer(reply: list[Any] | WorldFailed) -> list[Any]:
    if isinstance(reply, WorldFailed):
        raise reply
    return reply


def _epoch(epoch: int | None) -> str:
    return "" if epoch is None else str(epoch)
