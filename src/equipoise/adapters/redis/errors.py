"""Distinguishes failures of Redis without an effect from those whose effect is unknown.

The client's own errors do not distinguish them: they describe the last attempt only. An earlier attempt may
have taken effect without an answer. So a sender counts its attempts in a `Request`, and a failure is certain
only when the server has answered everything that was sent, with an error that rules out an effect.
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
IN_DOUBT = "no answer, so it may have happened or not"


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
