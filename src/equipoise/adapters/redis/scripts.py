"""Runs the writers' scripts: by their hash, and by their text where the server does not know them."""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from redis import Redis, RedisCluster
from redis import exceptions as redis_errors

from equipoise.adapters.redis.errors import WrongKeyType, explained, failure
from equipoise.model.errors import WorldFailed
from equipoise.pools.scripts import source

BATCH = 500
"""How many calls of a script travel together."""


@cache
def _sha(writer: str) -> str:
    return hashlib.sha1(source(writer).encode(), usedforsecurity=False).hexdigest()


class Scripts:
    """The writers on one server; every call names one key, and the others share its slot."""

    def __init__(self, client: "Redis | RedisCluster", key: str, address: str) -> None:
        self._client: Any = client
        self._key = key
        self._address = address

    def run(self, writer: str, arguments: Sequence[str]) -> list[Any]:
        """Run a script once. A restart, a failover or SCRIPT FLUSH makes the server forget it."""
        with explained(self._address):
            try:
                answer = self._client.evalsha(_sha(writer), 1, self._key, *arguments)
            except redis_errors.NoScriptError:
                answer = self._client.eval(source(writer), 1, self._key, *arguments)
        return _answer(answer)

    def run_all(self, writer: str, calls: Sequence[Sequence[str]]) -> list[list[Any] | WorldFailed]:
        """Run a script many times, in few round trips; each answers for itself.

        After a server that did not answer, nothing more is sent: it would only be waited for again.
        """
        answers = [self._one(writer, arguments) for arguments in calls[:1]]  # the server knows it now
        size = 1 if isinstance(self._client, RedisCluster) else BATCH
        for start in range(1, len(calls), size):
            if isinstance(answers[-1], WorldFailed) and not isinstance(answers[-1], WrongKeyType):
                unsent = WorldFailed(f"not sent, since the one before failed: {answers[-1]}")
                return answers + [unsent] * (len(calls) - len(answers))
            part = calls[start : start + size]
            answers += [self._one(writer, part[0])] if size == 1 else self._batch(writer, part)
        return answers

    def _one(self, writer: str, arguments: Sequence[str]) -> list[Any] | WorldFailed:
        try:
            return self.run(writer, arguments)
        except WorldFailed as error:
            return error

    def _batch(self, writer: str, calls: Sequence[Sequence[str]]) -> list[list[Any] | WorldFailed]:
        pipeline = self._client.pipeline(transaction=False)
        for arguments in calls:
            pipeline.evalsha(_sha(writer), 1, self._key, *arguments)
        try:
            raw = pipeline.execute(raise_on_error=False)
        except (redis_errors.RedisError, OSError) as error:
            return [failure(error, self._address)] * len(calls)
        return [
            self._one(writer, arguments)
            if isinstance(answer, redis_errors.NoScriptError)
            else failure(answer, self._address)
            if isinstance(answer, Exception)
            else _answer(answer)
            for arguments, answer in zip(calls, raw, strict=True)
        ]


def _answer(answer: object) -> list[Any]:
    if not isinstance(answer, list):
        raise WorldFailed(f"a script answered {answer!r}, which is no list")
    return answer
