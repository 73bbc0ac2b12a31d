"""Redis' failures are of two kinds: it did not happen, or it is not known whether it happened.

The client's own errors do not tell the two apart: they speak of the last attempt only. An earlier one may
have been done, and its answer lost. So whoever sends keeps a `Request`, and a failure is certain only when
the server has answered everything that was sent for it, in words that say so.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis import exceptions as redis_errors

from equipoise.core.errors import DECODE_ERRORS, EquipoiseError, WorldFailed
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
"""What the client raises; the second is no `RedisError`, the last are about answers that no Redis gives."""
_BEFORE_ANY_WRITE = (
    *("READONLY", "OOM", "NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "non local key"),
    "WRONGTYPE",
)
"""What stops a script at its first write or before; ours read every key, and so its type, before it."""
_NOT_BEGUN = {
    *("ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "DENIED", "LOADING", "MASTERDOWN", "MISCONF", "MOVED"),
    *("NOAUTH", "NOPERM", "NOPROTO", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "WRONGPASS"),
    "WRONGTYPE",
}
"""First words of errors by which a server refuses a command before it does anything of it."""
_NOT_BEGUN_ERR = (
    *("unknown command", "wrong number of arguments", "max number of clients reached"),
    *("Protocol error", "operation not permitted"),
)
"""The same of those that begin with ERR. What else is said, by a proxy for example, proves nothing."""
IN_DOUBT = "no answer, so it may have happened or not"


class WrongKeyType(WorldFailed):
    """A key of the pools has a type that it must not have. Nothing was changed."""


@dataclass(slots=True)
class Request:
    """One change that a caller asks for, however often it is sent."""

    unanswered: int = 0
    """How many times it was sent without an answer of the server that tells what came of it."""

    @property
    def is_in_doubt(self) -> bool:
        """Whether it may have happened although nobody said so."""
        return self.unanswered > 0


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn what the client raises while something is read into one line. Nothing was changed."""
    try:
        yield
    except EquipoiseError:
        raise
    except FAILURES as error:
        raise failure(error, address) from error


@contextmanager
def certain(request: Request) -> Iterator[None]:
    """Raise `Unanswered` for whatever fails once a request is in doubt: it may have changed something."""
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
    """Return whether a server said itself that it did nothing; others may answer in its place."""
    if not isinstance(error, redis_errors.ResponseError) and getattr(error, "status_code", None) is None:
        return False
    message = _said(error)
    if "user_script" in message:
        return any(word in message for word in _BEFORE_ANY_WRITE)
    code, _, rest = message.partition(" ")
    return code in _NOT_BEGUN or (code == "ERR" and rest.startswith(_NOT_BEGUN_ERR))


def failure(error: Exception, address: str, *, is_in_doubt: bool = False) -> WorldFailed:
    """Return what a failure means, after everything that was sent before it."""
    message = _said(error)
    if is_in_doubt:
        return Unanswered(f"{address}: {IN_DOUBT}: {message}")
    if "WRONGTYPE" in message:
        return WrongKeyType(
            f"{address}: a key of the pools has a wrong type; `equipoise pools fsck` names it. "
            "Nothing was changed"
        )
    if "READONLY" in message:
        return WorldFailed(f"{address}: it is a replica; connect to the primary: {message}")
    if isinstance(error, redis_errors.AskError | redis_errors.TryAgainError):
        return WorldFailed(f"{address}: the cluster moves these keys to another node: {message}")
    if isinstance(error, _REFUSED):
        return WorldFailed(f"{address}: refused: {message}")
    is_away = isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError | OSError)
    return WorldFailed(f"{address}: {'not reachable: ' if is_away else ''}{message}")
