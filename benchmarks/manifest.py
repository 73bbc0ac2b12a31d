"""One pod as an API server writes it: about 8.75 kB, of which a balancer reads a tenth."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

EPOCH = 1_790_000_000
NODES = 1500
RESTARTED_SHARE = 0.05
API_VERSIONS = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}
Json = dict[str, Any]


class Workload(NamedTuple):
    """A controller of pods."""

    number: int
    kind: str
    namespace: str
    name: str
    hash: str


class PodName(NamedTuple):
    """A pod before it has its many fields."""

    workload: Workload
    ordinal: int
    name: str


def uid(chance: random.Random) -> str:
    return str(UUID(int=chance.getrandbits(128), version=4))


def manifest(pod: PodName, number: int, owner_uid: str, chance: random.Random, *, is_whole: bool) -> Json:
    """Make the pod; without what only fills the wire when it is not to be whole."""
    created_at = EPOCH + pod.workload.number % 700_000 + chance.randrange(3600)
    metadata = _metadata(pod, number, owner_uid, uid(chance), created_at)
    node = chance.randrange(NODES)
    spec: Json = {
        "containers": [_container(name, pod.workload, is_whole=is_whole) for name in ("app", "proxy")],
        "nodeName": f"ip-10-1-{node // 250}-{node % 250}.eu-1.compute.internal",
        "priority": 0,
        "volumes": [
            {"name": "tmp", "emptyDir": {}},
            {"name": "config", "configMap": {"name": f"{pod.workload.name}-config", "defaultMode": 420}},
        ],
    }
    status = _status(number, created_at + chance.randrange(5, 90), chance, is_whole=is_whole)
    if is_whole:
        metadata |= _metadata_unread(pod, created_at)
        spec |= _spec_unread(pod)
        spec["volumes"].append(_token_volume())
    return {"metadata": metadata, "spec": spec, "status": status}


def labels(workload: Workload) -> dict[str, str]:
    """What all pods of a workload have in common."""
    return {
        "app.kubernetes.io/component": workload.name.split("-")[1],
        "app.kubernetes.io/instance": workload.name,
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": workload.name.split("-")[0],
        "app.kubernetes.io/version": f"2.{workload.number % 40}.{workload.number % 7}",
        "security.istio.io/tlsMode": "istio",
        "team": workload.namespace,
    }


def _metadata(pod: PodName, number: int, owner_uid: str, own_uid: str, created_at: float) -> Json:
    workload = pod.workload
    kind = "ReplicaSet" if workload.kind == "Deployment" else workload.kind
    own = {
        "ReplicaSet": {"pod-template-hash": workload.hash},
        "StatefulSet": {
            "apps.kubernetes.io/pod-index": str(pod.ordinal),
            "controller-revision-hash": f"{workload.name}-{workload.hash}",
            "statefulset.kubernetes.io/pod-name": pod.name,
        },
        "Job": {
            "batch.kubernetes.io/controller-uid": own_uid,
            "batch.kubernetes.io/job-name": pod.name[:-6],
        },
    }[kind]
    name = f"{workload.name}-{workload.hash}" if kind == "ReplicaSet" else workload.name
    owner = {
        "apiVersion": API_VERSIONS[kind],
        "kind": kind,
        "name": name,
        "uid": owner_uid,
        "controller": True,
    }
    return {
        "name": pod.name,
        "namespace": workload.namespace,
        "uid": own_uid,
        "resourceVersion": str(880_000_000 + number * 13),
        "creationTimestamp": _time(created_at),
        "labels": labels(workload) | own,
        "ownerReferences": [owner | {"blockOwnerDeletion": True}],
    }


def _metadata_unread(pod: PodName, created_at: float) -> Json:
    name = pod.workload.name
    return {
        "generateName": f"{name}-{pod.workload.hash}-",
        "annotations": {
            "checksum/config": f"{pod.workload.number:064x}",
            "kubectl.kubernetes.io/default-container": "app",
            "kubectl.kubernetes.io/restartedAt": _time(created_at),
            "prometheus.io/path": "/metrics",
            "prometheus.io/port": "15020",
            "prometheus.io/scrape": "true",
        },
        "managedFields": [
            _managed("kube-controller-manager", created_at, _SPEC_FIELDS),
            _managed("kubelet", created_at + 40, _STATUS_FIELDS) | {"subresource": "status"},
        ],
    }


def _managed(manager: str, at: float, fields: Json) -> Json:
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _time(at),
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


def _fields(*names: str) -> Json:
    return {".": {}} | {f"f:{name}": {} for name in names}


_CONTAINER_FIELDS = _fields(
    "image", "imagePullPolicy", "name", "terminationMessagePath", "terminationMessagePolicy"
) | {
    "f:env": {f'k:{{"name":"{name}"}}': _fields("name", "value") for name in ("LOG_LEVEL", "POD_IP")},
    "f:ports": {'k:{"containerPort":8080,"protocol":"TCP"}': _fields("containerPort", "name", "protocol")},
    "f:readinessProbe": _fields("failureThreshold", "periodSeconds", "successThreshold", "timeoutSeconds")
    | {"f:httpGet": _fields("path", "port", "scheme")},
    "f:resources": {"f:limits": _fields("cpu", "memory"), "f:requests": _fields("cpu", "memory")},
    "f:volumeMounts": {'k:{"mountPath":"/tmp"}': _fields("mountPath", "name")},
}
_SPEC_FIELDS: Json = {
    "f:metadata": {
        "f:annotations": _fields("checksum/config", "prometheus.io/path", "prometheus.io/port"),
        "f:generateName": {},
        "f:labels": _fields(
            "app.kubernetes.io/name", "app.kubernetes.io/instance", "pod-template-hash", "team"
        ),
        "f:ownerReferences": _fields('k:{"uid":"7d3a5d0c-61b0-4f8e-9a3e-0c4b7f1f2a11"}'),
    },
    "f:spec": {
        "f:containers": {f'k:{{"name":"{name}"}}': _CONTAINER_FIELDS for name in ("app", "proxy")},
        **{f"f:{name}": {} for name in ("dnsPolicy", "enableServiceLinks", "restartPolicy", "schedulerName")},
        "f:volumes": {f'k:{{"name":"{name}"}}': _fields("name", "configMap") for name in ("config", "tmp")},
    },
}
_STATUS_FIELDS: Json = {
    "f:status": {
        "f:conditions": {
            f'k:{{"type":"{name}"}}': _fields("lastProbeTime", "lastTransitionTime", "status", "type")
            for name in ("ContainersReady", "Initialized", "PodReadyToStartContainers", "Ready")
        },
        **{
            f"f:{name}": {}
            for name in ("containerStatuses", "hostIP", "hostIPs", "phase", "podIP", "startTime")
        },
        "f:podIPs": {'k:{"ip":"10.0.0.1"}': _fields("ip")},
    }
}


def _container(name: str, workload: Workload, *, is_whole: bool) -> Json:
    cpu, memory = ("1", "512Mi") if name == "app" else ("100m", "128Mi")
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "2", "memory": "1Gi"}}
    if not is_whole:
        return {"name": name, "resources": resources}
    probe = {"httpGet": {"path": "/healthz/ready", "port": 15021, "scheme": "HTTP"}, "periodSeconds": 10}
    return {
        "name": name,
        "image": f"registry.example.com/{workload.namespace}/{workload.name}:2.{workload.number % 40}.0",
        "args": ["--config=/etc/app/config.yaml", "--log-format=json"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
        ],
        "resources": resources,
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "config", "readOnly": True, "mountPath": "/etc/app"},
            {"name": "kube-api-access-x7k2p", "readOnly": True, "mountPath": "/var/run/secrets/tokens"},
        ],
        "readinessProbe": probe | {"timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True},
    }


def _spec_unread(pod: PodName) -> Json:
    same = {"matchLabels": {"app.kubernetes.io/instance": pod.workload.name}}
    gone = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": pod.workload.name,
        "serviceAccount": pod.workload.name,
        "securityContext": {"fsGroup": 1000},
        "schedulerName": "default-scheduler",
        "tolerations": [
            gone | {"key": f"node.kubernetes.io/{name}"} for name in ("not-ready", "unreachable")
        ],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": same}
            for key in ("topology.kubernetes.io/zone",)
        ],
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _token_volume() -> Json:
    return {
        "name": "kube-api-access-x7k2p",
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            ],
            "defaultMode": 420,
        },
    }


def _status(number: int, ready_at: float, chance: random.Random, *, is_whole: bool) -> Json:
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    times = {"lastProbeTime": None, "lastTransitionTime": _time(ready_at)}
    ip = f"10.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
    status: Json = {
        "phase": "Running",
        "qosClass": "Burstable",
        "conditions": [{"type": kind, "status": "True"} | times for kind in kinds],
        "containerStatuses": [_container_status(name, ready_at, chance) for name in ("app", "proxy")],
    }
    if is_whole:
        host = {"hostIP": f"10.1.{number % 250}.7", "hostIPs": [{"ip": f"10.1.{number % 250}.7"}]}
        status |= host | {"podIP": ip, "podIPs": [{"ip": ip}], "startTime": _time(ready_at - 4)}
    return status


def _container_status(name: str, ready_at: float, chance: random.Random) -> Json:
    has_restarted = chance.random() < RESTARTED_SHARE
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": _time(ready_at - 3)}}
    image = f"registry.example.com/{name}@sha256:{chance.getrandbits(256):064x}"
    return {
        "name": name,
        "state": {"running": {"startedAt": _time(ready_at - 2)}},
        "lastState": last if has_restarted else {},
        "ready": True,
        "restartCount": int(has_restarted),
        "image": f"registry.example.com/{name}:2.0.0",
        "imageID": image,
        "containerID": f"containerd://{chance.getrandbits(256):064x}",
        "started": True,
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
