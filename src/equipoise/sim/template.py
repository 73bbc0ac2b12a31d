"""What pods are made from: templates with their start-up times, names and UIDs, budgets.

Names and UIDs come from the seeded generator. Counts that may be percentages are rounded as Kubernetes rounds
each of them.
"""

import hashlib
import math
import uuid
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Literal

from equipoise.core.cluster import Container


@dataclass(frozen=True, slots=True)
class Delay:
    """How long something takes: a median, and how much the logarithm varies around it."""

    median_seconds: float
    sigma: float = 0.0

    def draw(self, rng: Random) -> float:
        if not self.sigma:
            return self.median_seconds
        return self.median_seconds * math.exp(rng.gauss(0.0, self.sigma))


@dataclass(frozen=True, slots=True)
class Template:
    """The pods of one revision."""

    containers: tuple[Container, ...] = (Container("app", 1.0, 256 * 2**20),)
    split: tuple[float, ...] = (1.0,)
    """Which part of the pod's usage each container has; the rest of a short list is 0."""
    start_up: Delay = Delay(8.0, 0.3)
    """From being placed on a node to being ready."""
    start_cores: float = 0.0
    """What a pod uses until it is ready."""
    idle_cores: float = 0.0
    """What a pod uses besides its work."""
    stop: Delay = Delay(2.0, 0.3)
    """From being asked to end to having ended, if the grace period allows."""
    grace_seconds: int = 30
    crash_after: Delay | None = None
    """How long a pod is ready before it crashes; None: it does not."""
    annotations: tuple[tuple[str, str], ...] = ()
    priority: int = 0
    priority_class: str = ""
    has_local_storage: bool = False
    node_labels: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """The labels of nodes that its pods can run on; they are not part of the revision's name."""
    parts: tuple[tuple[str, float], ...] = field(init=False, repr=False, compare=False)
    """The containers' names, and the part of the pod's usage that each has."""

    cpu_request_cores: float = field(init=False, repr=False, compare=False)
    memory_request_bytes: float = field(init=False, repr=False, compare=False)
    cpu_limit_cores: float = field(init=False, repr=False, compare=False)
    """What the pod can use at most; infinite when any container has no limit."""

    def __post_init__(self) -> None:
        """Work out once what is asked for at every step."""
        own, fix = self.containers, partial(object.__setattr__, self)
        fix("parts", tuple((each.name, self.part(each.name)) for each in own))
        fix("cpu_request_cores", math.fsum(each.cpu_request_cores or 0.0 for each in own))
        fix("memory_request_bytes", math.fsum(each.memory_request_bytes or 0.0 for each in own))
        fix("cpu_limit_cores", math.fsum(each.cpu_limit_cores or math.inf for each in own))

    @property
    def qos_class(self) -> str:
        """The class that Kubernetes would give these containers."""
        pairs = [(each.cpu_request_cores, each.cpu_limit_cores) for each in self.containers]
        pairs += [(each.memory_request_bytes, each.memory_limit_bytes) for each in self.containers]
        if not any(request or limit for request, limit in pairs):
            return "BestEffort"
        is_guaranteed = all(limit and request in {None, limit} for request, limit in pairs)
        return "Guaranteed" if is_guaranteed else "Burstable"

    def container(self, name: str) -> Container:
        return next(each for each in self.containers if each.name == name)

    def part(self, container: str) -> float:
        names = [each.name for each in self.containers]
        return dict(zip(names, self.split, strict=False)).get(container, 0.0)


ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""What Kubernetes spells random suffixes with: no vowels, so no words; no look-alikes."""


def suffix(rng: Random) -> str:
    return "".join(rng.choices(ALPHABET, k=5))


def uid(rng: Random) -> str:
    """Draw an identity that is never used again."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def template_hash(template: object, revision: int) -> str:
    """Name a revision of a template: the same one always gets the same name."""
    digest = hashlib.sha256(f"{revision} {template!r}".encode()).digest()
    return "".join(ALPHABET[byte % len(ALPHABET)] for byte in digest[:10])


def seeded(seed: int, purpose: str) -> Random:
    """Return a random generator for one purpose, so that its draws do not change those of others."""
    return Random(f"{seed}/{purpose}")  # noqa: S311 - a simulation must be repeatable, not unguessable


Portion = int | str
"""Such as 2 or `25%`."""


def of(portion: Portion, total: int, *, is_rounded_up: bool) -> int:
    """Return the count that a portion of a total is."""
    if isinstance(portion, int):
        return portion
    percent = int(portion.removesuffix("%"))
    # In whole numbers: ceil(0.07 x 100) in floats would be 8.
    return -(-total * percent // 100) if is_rounded_up else total * percent // 100


@dataclass(frozen=True, slots=True)
class Budget:
    """`minAvailable` or `maxUnavailable`: exactly one of them."""

    min_available: Portion | None = None
    max_unavailable: Portion | None = None
    unhealthy_policy: Literal["IfHealthyBudget", "AlwaysAllow"] = "IfHealthyBudget"

    def __post_init__(self) -> None:
        if (self.min_available is None) == (self.max_unavailable is None):
            raise ValueError("a budget has either min_available or max_unavailable")


@dataclass(frozen=True, slots=True)
class BudgetStatus:
    """The budget's status at the controller's last sync."""

    expected: int = 0
    desired: int = 0
    healthy: int = 0
    allowed: int = 0


def status(budget: Budget, *, pods: int, scale: int, healthy: int) -> BudgetStatus:
    """Work out a budget's status: `pods` match it, and their controllers want `scale`.

    Percentages are of the scale, and both are rounded up: 50 % of 3 unavailable are 2.
    """
    if budget.max_unavailable is not None:
        expected = scale
        desired = max(scale - of(budget.max_unavailable, scale, is_rounded_up=True), 0)
    else:
        least = budget.min_available or 0
        expected = pods if isinstance(least, int) else scale
        desired = of(least, scale, is_rounded_up=True)
    allowed = healthy - desired if expected > 0 else 0
    return BudgetStatus(expected, desired, healthy, max(allowed, 0))
