"""The machine of an agent: cgroups and /proc."""

from equipoise.adapters.cgroups.host import HostNode, connect_host
from equipoise.adapters.cgroups.layout import Layout, find_layout

__all__ = ["HostNode", "Layout", "connect_host", "find_layout"]
