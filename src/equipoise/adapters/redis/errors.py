"""Redis' failures in two words: it did not happen, or nobody knows."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions as redis_errors

from equipoise.model.errors import EquipoiseError, WorldFailed
from equipoise.ports import Unanswered

_REFUSED = (
    redis_errors.AuthenticationError,
    redis_errors.AuthorizationError,
    redis_errors.NoPermissionError,
    redis_errors.BusyLoadingError,
    redis_errors.ReadOnlyError,
    redis_errors.MaxConnectionsError,
    redis_errors.ClusterDownError,
)


class WrongKeyType(WorldFailed):
    """A key of the pools has a type that it must not have. Nothing was changed."""


@contextmanager
def explained(address: str) -> Iterator[None]:
    """Turn what the client raises into one line, and into whether it may have happened."""
    try:
        yield
    except EquipoiseError:
        raise
    except (redis_errors.RedisError, OSError) as error:
        raise failure(error, address) from error


def failure(error: Exception, address: str) -> WorldFailed:
    """Say what a failure means."""
    said = " ".join(str(error).split()) or type(error).__name__
    if "WRONGTYPE" in said:
        return WrongKeyType(
            f"{address}: a key of the pools has a wrong type; `equipoise pools fsck` names it. "
            "Nothing was changed"
        )
    if isinstance(error, _REFUSED):
        return WorldFailed(f"{address}: refused: {said}")
    if isinstance(error, redis_errors.ConnectionError | redis_errors.TimeoutError | OSError):
        # Before there is a connection, nothing was sent; afterwards, silence proves nothing.
        if "connecting to" in said or isinstance(error, OSError):
            return WorldFailed(f"{address}: not reachable: {said}")
        return Unanswered(f"{address}: no answer, so it may have happened or not: {said}")
    return WorldFailed(f"{address}: {said}")
