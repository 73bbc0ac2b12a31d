"""The machine itself: its cgroups, /proc, and the agent's state on its disk."""

from equipoise.adapters.cgroups.host import HostNode, connect_host
from equipoise.adapters.cgroups.layout import Layout, find_layout

__all__ = ["HostNode", "Layout", "connect_host", "find_layout"]
