"""The shared neighbours of the end-to-end tests, for tests that `make compat` alone runs."""

import os

from tests.e2e.conftest import bed, control_plane, kwok, namespace, offered

__all__ = ["bed", "control_plane", "kwok", "namespace", "offered"]

collect_ignore_glob = [] if os.environ.get("EQUIPOISE_COMPAT") == "1" else ["test_*.py"]
"""The servers take many minutes to build, so nobody who runs the other tests builds them by accident."""
