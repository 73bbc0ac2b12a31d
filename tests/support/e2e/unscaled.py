"""Manifests of workloads that have pods and no scale."""

from typing import Any


def unscaled_workloads(namespace: str) -> list[dict[str, Any]]:
    """Return a DaemonSet `agent`, and a suspended CronJob `nightly`."""
    containers = [{"name": "app", "image": "busybox:1"}]
    labels = {"app": "agent"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    job = {"template": {"spec": {"containers": containers, "restartPolicy": "Never"}}}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent", "namespace": namespace},
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "nightly", "namespace": namespace},
            "spec": {"schedule": "0 3 * * *", "suspend": True, "jobTemplate": {"spec": job}},
        },
    ]
