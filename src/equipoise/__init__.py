"""Equipoise keeps Kubernetes workloads in balance, and says why."""

__version__ = "0.1.0"
