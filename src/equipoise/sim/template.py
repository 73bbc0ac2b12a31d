"""What a workload's pods are made from."""

import math
from dataclasses import dataclass, field
from random import Random

from equipoise.model.cluster import Container


@dataclass(frozen=True, slots=True)
class Delay:
    """How long something takes: a median, and how much the logarithm varies around it."""

    median_seconds: float
    sigma: float = 0.0

    def draw(self, chance: Random) -> float:
        """Draw one duration."""
        if not self.sigma:
            return self.median_seconds
        return self.median_seconds * math.exp(chance.gauss(0.0, self.sigma))


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
    """Only nodes with these labels take its pods; a revision's name does not tell of them."""
    parts: tuple[tuple[str, float], ...] = field(init=False, repr=False, compare=False)
    """The containers' names, and the part of the pod's usage that each has."""

    cpu_request_cores: float = field(init=False, repr=False, compare=False)
    memory_request_bytes: float = field(init=False, repr=False, compare=False)
    cpu_limit_cores: float = field(init=False, repr=False, compare=False)
    """What the pod can use at most; infinite when any container has no limit."""

    def __post_init__(self) -> None:
        """Work out once what is asked for at every step."""
        of_pod = {
            "parts": tuple((each.name, self.part(each.name)) for each in self.containers),
            "cpu_request_cores": math.fsum(each.cpu_request_cores or 0.0 for each in self.containers),
            "memory_request_bytes": math.fsum(each.memory_request_bytes or 0.0 for each in self.containers),
            "cpu_limit_cores": math.fsum(each.cpu_limit_cores or math.inf for each in self.containers),
        }
        for name, value in of_pod.items():
            object.__setattr__(self, name, value)

    @property
    def qos_class(self) -> str:
        """The class that Kubernetes would give these containers."""
        pairs = [
            (asked, limit)
            for container in self.containers
            for asked, limit in (
                (container.cpu_request_cores, container.cpu_limit_cores),
                (container.memory_request_bytes, container.memory_limit_bytes),
            )
        ]
        if not any(asked or limit for asked, limit in pairs):
            return "BestEffort"
        return (
            "Guaranteed" if all(limit and asked in {None, limit} for asked, limit in pairs) else "Burstable"
        )

    def part(self, container: str) -> float:
        """Give the part of the pod's usage that a container has."""
        for index, own in enumerate(self.containers):
            if own.name == container:
                return self.split[index] if index < len(self.split) else 0.0
        return 0.0
