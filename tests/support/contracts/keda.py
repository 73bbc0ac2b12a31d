"""As much of KEDA as a pause needs: a definition of its kind, and objects of it. No controller."""

from collections.abc import Mapping
from typing import Any

from equipoise.core.cluster import WorkloadRef
from tests.testbed import ControlPlane, wait_until

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/scaledobjects.keda.sh"
KINDS = "/apis/keda.sh/v1alpha1"
COLLECTION = f"{KINDS}/scaledobjects"
_SERVED_SECONDS = 120.0


def install_scaled_objects(control_plane: ControlPlane) -> None:
    """Bring the kind, with a looser schema than KEDA's, and wait until it is served."""
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    control_plane.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "scaledobjects.keda.sh"},
            "spec": {
                "group": "keda.sh",
                "scope": "Namespaced",
                "names": {"kind": "ScaledObject", "plural": "scaledobjects", "listKind": "ScaledObjectList"},
                "versions": [
                    {
                        "name": "v1alpha1",
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": loose},
                    }
                ],
            },
        }
    )
    wait_until(lambda: _places(control_plane) == {True}, "ScaledObjects served", _SERVED_SECONDS)


def remove_scaled_objects(control_plane: ControlPlane) -> None:
    """Take the kind away, and wait until it is gone."""
    control_plane.api.delete(DEFINITION)
    wait_until(lambda: _places(control_plane) == {False}, "no ScaledObjects", _SERVED_SECONDS)


def _places(control_plane: ControlPlane) -> set[bool]:
    """Tell whether the kind is there: by its objects, and by the list of kinds, which is later."""
    return {control_plane.api.answers(COLLECTION), control_plane.api.answers(KINDS)}


def scaled_object(target: WorkloadRef, annotations: Mapping[str, str]) -> dict[str, Any]:
    """Scale a workload under its own name, as KEDA's users write it."""
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "name": target.name,
            "namespace": target.namespace,
            "annotations": dict(annotations),
        },
        "spec": {"scaleTargetRef": {"name": target.name}},
    }
