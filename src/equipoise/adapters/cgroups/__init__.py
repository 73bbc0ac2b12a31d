"""The machine of an agent: cgroups and /proc."""

from equipoise.adapters.cgroups.host import HostNode, connect_host, find_layout

__all__ = ["HostNode", "connect_host", "find_layout"]
