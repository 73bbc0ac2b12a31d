"""The status of a custom resource: where it can't be written, that is said and not taken for a race."""

import pytest

from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.core.cluster import ObjectRef
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import DefinedKind
from equipoise.ports import PolicyObject, StoreConflict
from tests.support.kubernetes.server import Asked, Stage, playing, session

GROUP, VERSION, PLURAL = "scalingpolicy.kope.io", "v1alpha1", "scalingpolicies"
DNS = PolicyObject(ObjectRef(f"{GROUP}/{VERSION}", "ScalingPolicy", "shop", "dns", "uid-1"), 1, "7", {}, {})


@pytest.mark.parametrize("is_there", [True, False])
def test_a_kind_without_a_status_is_no_object_that_has_gone(is_there: bool) -> None:
    """To both the server says that it is not found; the object itself tells them apart."""

    def script(asked: Asked, stage: Stage) -> None:
        if is_there and asked.method == "GET":
            stage.answer({"metadata": {"name": "dns", "namespace": "shop", "uid": "uid-1"}})
        else:
            stage.refuse(404, "NotFound", f'{PLURAL}.{GROUP} "dns" not found')

    with playing(script) as player, session(player.url) as client:
        policies = KubernetesPolicies(client, DefinedKind(GROUP, VERSION, "ScalingPolicy", PLURAL, "", {}))
        with pytest.raises(WorldFailed if is_there else StoreConflict) as failed:
            policies.write_status(DNS, {"message": "all is well"})
    assert ("has no status subresource" in str(failed.value)) is is_there


def test_a_kind_that_is_not_installed_has_no_objects() -> None:
    """Asked for what is in the way of a policy in a file; another failure stays one."""
    status = 404

    def script(asked: Asked, stage: Stage) -> None:
        del asked
        stage.refuse(status, "NotFound" if status == 404 else "Forbidden", "no")

    with playing(script) as player, session(player.url) as client:
        policies = KubernetesPolicies(client, DefinedKind(GROUP, VERSION, "ScalingPolicy", PLURAL, "", {}))
        assert list(policies.listed_if_installed("shop")) == []
        status = 403
        with pytest.raises(WorldFailed):
            policies.listed_if_installed("shop")
