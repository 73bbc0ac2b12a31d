"""A client whose answers a test writes down beforehand."""

from typing import Any

from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.core.cluster import WorkloadRef
from equipoise.ports import ApplyAnswer
from tests.support.contracts.applier_facts import wanted
from tests.support.kubernetes.samples import page
from tests.support.kubernetes.server import Asked, Stage, playing, session

WEB = WorkloadRef("apps/v1", "Deployment", "shop", "web")


HPAS = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"


DEPLOYMENT = "/apis/apps/v1/namespaces/shop/deployments/web"


REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


KINDS = {
    "/apis/autoscaling/v2": [{"name": "horizontalpodautoscalers", "kind": "HorizontalPodAutoscaler"}],
    "/apis/apps/v1": [{"name": "deployments", "kind": "Deployment"}],
    "/apis/keda.sh/v1alpha1": [{"name": "scaledobjects", "kind": "ScaledObject"}],
}


OURS = {"manager": "equipoise", "operation": "Apply", "fieldsV1": {"f:spec": {"f:maxReplicas": {}}}}


LABELLED = {"app.kubernetes.io/managed-by": "equipoise"}


def there(labels: Any = None, managed: Any = None, **more: Any) -> dict[str, Any]:
    """Give an HPA of web as the server has it."""
    made = wanted(WEB)
    made["metadata"] |= {"uid": "6a3c", "labels": labels, "managedFields": managed, **more}
    return made


class Scripted:
    """A server with these answers by method and path; what is not there is not found."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[tuple[str, str], Any] = {
            ("GET", HPAS): page([]),
            ("PATCH", f"{HPAS}/web"): there(LABELLED, [OURS]),
            ("POST", REVIEWS): {"status": {"allowed": True}},
        }
        self.answers |= {tuple(key.split(" ")): value for key, value in answers.items()}  # type: ignore[misc]
        self.asked: list[Asked] = []

    def script(self, asked: Asked, stage: Stage) -> None:
        self.asked.append(asked)
        if asked.path in KINDS:
            resources = [{**kind, "namespaced": True} for kind in KINDS[asked.path]]
            stage.answer({"resources": resources})
            return
        answer = self.answers.get((asked.method, asked.path), (404, "NotFound", "not found"))
        if answer == "cut":
            stage.cut()
        elif isinstance(answer, tuple):
            status, reason, message, *causes = answer
            details = {"causes": causes}
            body = {"kind": "Status", "reason": reason, "message": message, "code": status}
            stage.answer(body | {"details": details}, status)
        else:
            stage.answer(answer)

    def apply(self, manifest: dict[str, Any] | None = None, *, is_dry_run: bool = False) -> ApplyAnswer:
        with playing(self.script) as player, session(player.url) as client:
            return KubernetesApplier(client).apply_hpa(manifest or wanted(WEB), is_dry_run=is_dry_run)

    def annotate(self, **annotations: str) -> ApplyAnswer:
        with playing(self.script) as player, session(player.url) as client:
            return KubernetesApplier(client).annotate(WEB, annotations)

    @property
    def written(self) -> list[Asked]:
        return [asked for asked in self.asked if asked.method != "GET" and asked.path != REVIEWS]
