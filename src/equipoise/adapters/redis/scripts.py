"""Runs the writers' Lua scripts, and knows of every failure whether it may have had an effect.

There is one script per writer, in `lua/`; each reads and checks everything before its first write. Scripts
are run by their hash, and by their text where the server has not cached them.

The client would retry by itself and raise only the last error, which describes the last attempt. An earlier
attempt may have taken effect without an answer. So scripts are sent on the client's connections, but not by
the client: a sender counts its attempts in a `Request`, and a failure is certain only when the server has
answered everything that was sent, with an error that rules out an effect.
"""

import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from redis import Redis, RedisCluster
from redis import exceptions as redis_errors

from equipoise.core.errors import DECODE_ERRORS, EquipoiseError, WorldFailed
from equipoise.core.pools import PoolCode
from equipoise.ports import Unanswered

_REFUSED = (
    redis_errors.AuthenticationError,
    redis_errors.AuthorizationError,
    redis_errors.NoPermissionError,
    redis_errors.BusyLoadingError,
    redis_errors.MaxConnectionsError,
    redis_errors.ClusterDownError,
)
FAILURES = (
    redis_errors.RedisError,
    redis_errors.RedisClusterException,
    OSError,
    *DECODE_ERRORS,
    AttributeError,
    LookupError,
)
"""The client's exceptions; the second is no `RedisError`, the last are raised for invalid answers."""
_BEFORE_ANY_WRITE = (
    *("READONLY", "OOM", "NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "non local key"),
    "WRONGTYPE",
)
"""Errors that stop a script at its first write or before; our scripts read every key before writing."""
_NOT_BEGUN = {
    *("ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "DENIED", "LOADING", "MASTERDOWN", "MISCONF", "MOVED"),
    *("NOAUTH", "NOPERM", "NOPROTO", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS"),
    "WRONGTYPE",
}
"""First words of errors with which a server refuses a command without any effect."""
_NOT_BEGUN_ERR = (
    *("unknown command", "wrong number of arguments", "max number of clients reached"),
    *("Protocol error", "operation not permitted"),
)
"""The same of those that begin with ERR. What else is said, by a proxy for example, proves nothing."""
IN_DOUBT = "no answer, so the outcome is unknown"


class WrongKeyType(WorldFailed):
    """A key of the pools has a wrong type. Nothing was changed."""


@dataclass(slots=True)
class Request:
    """One change, with all attempts to send it."""

    unanswered: int = 0
    """The number of attempts whose effect is unknown."""

    @property
    def is_in_doubt(self) -> bool:
        """Return whether the change may have taken effect without a confirmation."""
        return self.unanswered > 0


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Convert the client's exceptions during a read into a WorldFailed. Nothing was changed."""
    try:
        yield
    except EquipoiseError:
        raise
    except FAILURES as error:
        raise failure(error, address) from error


@contextmanager
def certain(request: Request) -> Iterator[None]:
    """Raise `Unanswered` for any failure while a request's effect is unknown."""
    try:
        yield
    except Unanswered:
        raise
    except EquipoiseError as error:
        if request.is_in_doubt:
            raise Unanswered(f"{IN_DOUBT}; then: {error}") from error
        raise


def _said(error: Exception) -> str:
    code = getattr(error, "status_code", None) or ""  # the client takes those that it knows out of the text
    return " ".join(f"{code} {error}".split()) or type(error).__name__


def is_refusal(error: Exception) -> bool:
    """Return whether the error proves that the server did nothing; a proxy may answer in its place."""
    if not isinstance(error, redis_errors.ResponseError) and getattr(error, "status_code", None) is None:
        return False
    message = _said(error)
    if "user_script" in message:
        return any(word in message for word in _BEFORE_ANY_WRITE)
    code, _, rest = message.partition(" ")
    return code in _NOT_BEGUN or (code == "ERR" and rest.startswith(_NOT_BEGUN_ERR))


def failure(error: Exception, address: str, *, is_in_doubt: bool = False) -> WorldFailed:
    """Return the error for a failure, given the earlier attempts of its request."""
    message = _said(error)
    if is_in_doubt:
        return Unanswered(f"{address}: {IN_DOUBT}: {message}")
    if "WRONGTYPE" in message:
        return WrongKeyType(
            f"{address}: a key of the pools has a wrong type; run `equipoise pools fsck` to find it. "
            "Nothing was changed"
        )
    if "READONLY" in message:
        return WorldFailed(f"{address}: expected the primary, got a replica: {message}")
    if isinstance(error, redis_errors.AskError | redis_errors.TryAgainError):
        return WorldFailed(f"{address}: the cluster is moving these keys to another node: {message}")
    if isinstance(error, _REFUSED):
        return WorldFailed(f"{address}: refused: {message}")
    is_away = isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError | OSError)
    return WorldFailed(f"{address}: {'not reachable: ' if is_away else ''}{message}")


READERS = ("snapshot",)
_WRITER = """local function answer()
{text}
end

local answered, has_written = answer()
if not has_written then redis.call('GETEX', KEYS[1]) end
return answered
"""
"""GETEX without a time reads as GET does. But it counts as a write, and a replica refuses it: whatever a
writer answers, the primary has said it. The writers that are called most say themselves that they wrote."""
_NAMES_A_KEY = re.compile(r"(^local function (\w+_key)\((\w+)\) return (.+) end\n\n)", re.MULTILINE)
_DEFINES = re.compile(r"^local (?:function )?([\w, ]+?)(?: =|\()", re.MULTILINE)


@cache
def source(writer: str) -> str:
    """Return the whole text of one script, as the server gets it: with what it uses of the common parts."""
    text = _read(writer) if writer in READERS else _WRITER.format(text=_read(writer).strip())
    for part in reversed([*_parts("prelude"), *_parts("metadata")]):
        found = _DEFINES.search(part)
        names = "|".join(found[1].split(", ")) if found else ""
        if re.search(rf"\b({names})\b", text):
            text = f"{part}\n\n{text}"
    return _written_out(text)


def _written_out(text: str) -> str:
    """Put what names a key where it is used: a function costs time at every call of the script."""
    for whole, name, argument, value in _NAMES_A_KEY.findall(text):
        text = text.replace(whole, "")
        for used in set(re.findall(rf"\b{name}\((\w+)\)", text)):
            said = value.replace(f".. {argument}", f".. {used}")
            text = text.replace(f"{name}({used})", f"({said})")
    return text


def _read(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text()


def _parts(name: str) -> list[str]:
    """Split a file at its blank lines: each part defines one thing."""
    return _read(name).strip().split("\n\n")


BATCH = 500
"""How many calls of a script are sent together."""
RETRY_SECONDS = 0.2
ATTEMPTS = 2
"""Every writer is idempotent, so a second attempt is safe; more would hide a failing server."""
ROUNDS = 5
"""How often what the server did not do, since the script or the slot was elsewhere, goes out again."""
INVALID_ANSWER = "a script answered {!r}, which is not an answer of Equipoise's scripts"
SHOWN_MAX = 200
CODES = frozenset(PoolCode)
_ELSEWHERE = (redis_errors.NoScriptError, redis_errors.MovedError)
Command = tuple[str, ...]


@cache
def _sha(writer: str) -> str:
    return hashlib.sha1(source(writer).encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """The writers on one server; every call names one key, and the others are in the same slot."""

    def __init__(self, client: "Redis | RedisCluster", key: str, address: str) -> None:
        self._client: Any = client
        self._key = key
        self._address = address

    def run(self, writer: str, arguments: Sequence[str], request: Request | None = None) -> list[Any]:
        """Run a script once; the request records whether its effect is unknown."""
        found = self._batch(writer, [arguments], [request or Request()])[0]
        if isinstance(found, WorldFailed):
            raise found
        return found

    def read(self, writer: str, arguments: Sequence[str]) -> list[Any]:
        """Run a script that changes nothing, so that no failure has an unknown effect."""
        with explained(self._address):
            try:
                found = self._client.evalsha(_sha(writer), 1, self._key, *arguments)
            except redis_errors.NoScriptError:
                found = self._client.eval(source(writer), 1, self._key, *arguments)
        if not isinstance(found, list):
            raise WorldFailed(f"{self._address}: {INVALID_ANSWER.format(str(found)[:SHOWN_MAX])}")
        return found

    def run_all(
        self, writer: str, calls: Sequence[Sequence[str]], requests: Sequence[Request]
    ) -> list[list[Any] | WorldFailed]:
        """Run a script many times, in few round trips; each answers for itself.

        After a server that did not answer, nothing more is sent: it would only be waited for again.
        """
        answers: list[list[Any] | WorldFailed] = []
        start = 0
        while start < len(calls):
            if answers and isinstance(answers[-1], WorldFailed) and not isinstance(answers[-1], WrongKeyType):
                unsent = WorldFailed(f"not sent because the previous one failed: {answers[-1]}")
                return answers + [unsent] * (len(calls) - len(answers))
            end = start + (BATCH if start else 1)  # after the first one the server has cached the script
            answers += self._batch(writer, calls[start:end], requests[start:end])
            start = end
        return answers

    def _batch(
        self, writer: str, calls: Sequence[Sequence[str]], requests: Sequence[Request]
    ) -> list[list[Any] | WorldFailed]:
        """Send some together, and again those whose script or slot the server does not have."""
        commands = [("EVALSHA", _sha(writer), "1", self._key, *words) for words in calls]
        replies = self._ask(commands, requests)
        for _ in range(ROUNDS):
            again = [at for at, reply in enumerate(replies) if isinstance(reply, _ELSEWHERE)]
            if not again:
                break
            is_moved = any(isinstance(replies[at], redis_errors.MovedError) for at in again)
            part = [commands[at] for at in again]
            part[0] = ("EVAL", source(writer), *part[0][2:])
            came = self._ask(part, [requests[at] for at in again], is_moved=is_moved)
            for at, reply in zip(again, came, strict=True):
                replies[at] = reply
        return [
            failure(reply, self._address, is_in_doubt=request.is_in_doubt)
            if isinstance(reply, Exception)
            else reply
            if _is_answer(reply)
            else Unanswered(f"{self._address}: {INVALID_ANSWER.format(str(reply)[:SHOWN_MAX])}")
            for reply, request in zip(replies, requests, strict=True)
        ]

    def _ask(
        self, commands: Sequence[Command], requests: Sequence[Request], *, is_moved: bool = False
    ) -> list[Any]:
        """Return each command's reply, or why there is none; what was not answered is sent once more."""
        replies: list[Any] = []
        problem: Exception | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(RETRY_SECONDS)
            connection = None
            try:
                pool = self._pool(is_elsewhere=is_moved or attempt > 0)
                connection = pool.get_connection()  # without a connection, nothing is sent
                _exchange(connection, commands[len(replies) :], requests[len(replies) :], replies)
            except (*FAILURES, ValueError) as error:  # the last: an answer that is none
                problem = error
            finally:
                if connection is not None:
                    pool.release(connection)
            is_away = connection is None and not isinstance(self._client, RedisCluster)
            if is_away or len(replies) == len(commands):
                break  # a connection tries twice by itself; of a cluster, another node may have the keys now
        return replies + [problem] * (len(commands) - len(replies))

    def _pool(self, *, is_elsewhere: bool) -> Any:
        """Return the connections of the server that has the keys; of a cluster it may be another one now."""
        if not isinstance(self._client, RedisCluster):
            return self._client.connection_pool
        if is_elsewhere:
            self._client.nodes_manager.initialize()
        cluster: Any = self._client
        return cluster.get_redis_connection(cluster.get_node_from_key(self._key)).connection_pool


def _is_answer(reply: Any) -> bool:
    """Return whether this is the answer of a writer: its code, then texts."""
    is_text = isinstance(reply, list) and bool(reply) and all(isinstance(word, str) for word in reply)
    return is_text and reply[0] in CODES


def _exchange(
    connection: Any, commands: Sequence[Command], requests: Sequence[Request], replies: list[Any]
) -> None:
    """Send commands, and add to the replies, in order, as far as the server answers."""
    try:
        packed = connection.pack_commands(commands)
        for request in requests:
            request.unanswered += 1
        connection.send_packed_command(packed, check_health=False)
        for request in requests:
            reply = _reply(connection, request)
            replies.append(reply)
    except BaseException:
        connection.disconnect()  # what is still under way must not be taken for the next answer
        raise


def _reply(connection: Any, request: Request) -> Any:
    """Read one reply; it answers its request unless it is an error that does not tell what came of it."""
    try:
        reply = connection.read_response()
    except redis_errors.RedisError as error:
        request.unanswered -= is_refusal(error)
        if not isinstance(error, redis_errors.ResponseError):
            raise
        return error
    request.unanswered -= 1
    return reply
