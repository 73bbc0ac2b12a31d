"""What the agent's round needs to be told by the API server."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from equipoise.qos.pods import PodTold
from equipoise.qos.policy import QosPolicy


class Surroundings(Protocol):
    """What the API server tells of this node."""

    def pods(self) -> Sequence[PodTold]:
        """Give the pods of this node; raise where they were never listed."""
        ...

    def policy(self) -> QosPolicy:
        """Give all that is asked for, as one."""
        ...

    def labels(self) -> Mapping[str, str]:
        """Give the node's labels."""
        ...

    def is_scheduling_disabled(self) -> bool:
        """Tell whether our own taint is on the node."""
        ...

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        """Put our taint and condition on the node, or take them off."""
        ...
