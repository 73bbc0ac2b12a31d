"""What one round leaves for the next: how often each rule was crossed or clear, and when actions began."""

from collections.abc import Mapping
from typing import Any

import msgspec


class QosMemory(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """All that is carried over for one node. Rules are named `POLICY/RULE`."""

    breaches: dict[str, int] = {}
    """Rounds in a row in which a rule was crossed, this one not counted."""
    clear: dict[str, int] = {}
    """Rounds in a row in which it was not."""
    last_trigger: dict[str, float] = {}
    """When an action was last wanted, by its name."""

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "QosMemory":
        """Read what `to_data` gave; a ValueError says what does not fit."""
        return msgspec.convert(dict(data), type=cls)

    def to_data(self) -> dict[str, Any]:
        """Give it as plain data."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data
