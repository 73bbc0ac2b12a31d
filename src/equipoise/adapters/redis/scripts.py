"""Runs the writers' scripts by their hash, and by their text where the server has not cached them.

The client would retry by itself and raise only the last error. So scripts are sent on the client's
connections, but not by the client: every attempt and its answer are tracked.
"""

import hashlib
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from redis import Redis, RedisCluster
from redis import exceptions as redis_errors

from equipoise.adapters.redis.errors import FAILURES, Request, WrongKeyType, explained, failure, is_refusal
from equipoise.adapters.redis.lua import source
from equipoise.core.errors import WorldFailed
from equipoise.core.pools import PoolCode
from equipoise.ports import Unanswered

BATCH = 500
"""How many calls of a script are sent together."""
RETRY_SECONDS = 0.2
ATTEMPTS = 2
"""Every writer is idempotent, so a second attempt is safe; more would hide a failing server."""
ROUNDS = 5
"""How often what the server did not do, since the script or the slot was elsewhere, goes out again."""
INVALID_ANSWER = "a script answered {!r}, which none of ours says"
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
                unsent = WorldFailed(f"not sent, since the one before failed: {answers[-1]}")
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
