"""Decides whether the agent may change anything: Enforce, CRDs that are ours, and no other agent on the node.

The owner of a CRD can change while an agent runs: Crane is installed or removed. So ownership is checked
again every few minutes, and whenever the first policy appears.
"""

import time
from collections.abc import Callable

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.policies import look_at
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.qos.policy import GROUP, VERSION

CHECK_SECONDS = 300.0
"""How long a check of the CRD's owner is valid."""
RETRY_SECONDS = 10.0
"""The delay before a first check that failed is retried; nothing is changed meanwhile."""
PREVIEW = "nothing is changed in Preview"
FOREIGN = (
    "ForeignController: the kinds of ensurance.crane.io are somebody else's; nothing is changed until "
    "--crane on says to take over"
)
OTHER = f"the kinds of {GROUP} are somebody else's, whose agent may have written it"


class EnforcementGate:
    """Checks before each cycle whether anything may be changed."""

    def __init__(
        self,
        client: Client,
        *,
        is_enforced: bool,
        takes_over: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_enforced = is_enforced
        self._takes_over = takes_over
        # One attempt: a round must not wait for an API server that does not answer.
        self._client = client.with_own_connections(backoff=Backoff(attempts_max=1))
        self._monotonic = monotonic
        self._standing: Standing | None = None
        self._had_policies = False
        self._check_at = float("-inf")
        self._why_unknown = ""
        self.is_unknown = False
        """True if the last denial was only that the API was unreachable; throttles are then kept."""

    def denial(self, crane_pod: str, has_policies: Callable[[], bool]) -> str:
        """Return why nothing may be changed now, or ""; `crane_pod` is one of Crane's agent on this node."""
        self.is_unknown = False
        if not self._is_enforced:
            return PREVIEW
        if crane_pod:
            return f"{_crane(crane_pod)}; remove one of them"
        if self._takes_over:
            return ""
        has_now = has_policies()
        self._check(is_first=has_now and not self._had_policies)
        self._had_policies = has_now
        self.is_unknown = self._standing is None
        if self.is_unknown:
            return self._unknown()
        return FOREIGN if self._standing is Standing.FOREIGN else ""

    def other_agent(self, crane_pod: str) -> str:
        """Return why a quota on this node may be another agent's, or ""; the same in Preview and Enforce."""
        if crane_pod:
            return _crane(crane_pod)
        if self._takes_over:
            return ""
        self._check(is_first=False)
        if self._standing is None:
            return self._unknown()
        return OTHER if self._standing is Standing.FOREIGN else ""

    def _unknown(self) -> str:
        return f"whose the kinds of {GROUP} are is not known: {self._why_unknown}"

    def _check(self, *, is_first: bool) -> None:
        """Check the CRD's owner when due; a failed check keeps the last answer, unless `is_first`."""
        if is_first:
            self._standing = None
        now = self._monotonic()
        if not is_first and now < self._check_at:
            return
        try:
            self._standing = look_at(self._client, GROUP, VERSION, "nodeqosensurancepolicies").standing
        except WorldFailed as error:
            self._why_unknown = str(error)
        self._check_at = now + (RETRY_SECONDS if self._standing is None else CHECK_SECONDS)


def _crane(pod: str) -> str:
    return f"pod {pod} is Crane's own agent, and both would write the same quotas"
