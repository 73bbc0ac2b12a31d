"""Functions for the batches' worker. It imports this module, so it is light."""

import os
import signal
import time
from collections.abc import Sequence


def add(one: int, other: int) -> int:
    return one + other


def worker_id() -> int:
    return os.getpid()


def niceness() -> int:
    return os.nice(0)


def fail(text: str) -> None:
    raise ValueError(text)


class Stubborn(Exception):  # noqa: N818
    """An exception that pickle can't bring back."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def fail_stubbornly() -> None:
    raise Stubborn(1, 2)


def die() -> None:
    os._exit(7)


def hang() -> None:
    time.sleep(3600)


def give_lambda() -> object:
    return lambda: None


def burn_until(file: str, seconds: float) -> bool:
    """Hold a core until a file is there; tell whether it came within so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if os.path.exists(file):  # noqa: PTH110 - pathlib is not light
            return True
    return False


def double_but(numbers: Sequence[int], deadly: int) -> list[int]:
    """Double numbers, but for one that ends the process as the kernel's OOM killer does."""
    if deadly in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    return [2 * number for number in numbers]
