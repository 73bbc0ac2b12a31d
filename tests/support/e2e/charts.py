"""Helm as a user runs it, and what a service account did according to the API server's audit."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import ControlPlane, binary, wait_until
from tests.testbed.parts import KUBERNETES

CHART = Path(__file__).parents[3] / "charts" / "equipoise"
HELM_SECONDS = 300
Values = Mapping[str, Any]
Right = tuple[str, str, str]
"""Verb, group, and resource with its subresource."""


def _monitoring(kind: str) -> dict[str, Any]:
    """Define a kind of Prometheus' own operator by its name alone: what is in it is its owner's to check."""
    plural, anything = f"{kind.lower()}s", {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


MONITORING = [_monitoring(kind) for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule")]
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
}


class Helm:
    """The command, without the settings, plugins and repositories of whoever runs the tests."""

    def __init__(self, folder: Path) -> None:
        self._binary = binary("helm")
        foreign = ("HELM_", "KUBE")
        self._env = {key: value for key, value in os.environ.items() if not key.startswith(foreign)} | {
            f"HELM_{what}_HOME": str(folder / what.lower()) for what in ("CACHE", "CONFIG", "DATA")
        }

    def run(self, *arguments: str, values: Values | None = None) -> subprocess.CompletedProcess[str]:
        """Run it on the chart with these values; whether it succeeds is for the caller to say."""
        return subprocess.run(
            [self._binary, *arguments, "--values=-"],
            input=json.dumps(values or {}),
            capture_output=True,
            text=True,
            timeout=HELM_SECONDS,
            check=False,
            env=self._env,
        )

    def lint(self, values: Values) -> subprocess.CompletedProcess[str]:
        """Check the chart; a warning is a failure too."""
        return self.run("lint", "--strict", f"--kube-version={KUBERNETES}", str(CHART), values=values)

    def template(self, namespace: str, values: Values, release: str = "equipoise") -> list[dict[str, Any]]:
        """Render the chart; give its objects, without the definitions."""
        place = (f"--namespace={namespace}", f"--kube-version={KUBERNETES}")
        done = self.run("template", release, str(CHART), *place, values=values)
        assert done.returncode == 0, done.stderr
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def install(self, plane: ControlPlane, release: str, namespace: str, values: Values) -> str:
        """Install a release for real, or upgrade it; give what Helm says to the user."""
        place = (f"--kubeconfig={plane.kubeconfig}", f"--namespace={namespace}")
        done = self.run("upgrade", "--install", release, str(CHART), *place, values=values)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def uninstall(self, plane: ControlPlane, release: str, namespace: str) -> None:
        """Remove a release."""
        place = (f"--kubeconfig={plane.kubeconfig}", f"--namespace={namespace}")
        done = subprocess.run(
            [self._binary, "uninstall", release, *place, f"--timeout={HELM_SECONDS - 20}s"],
            capture_output=True,
            text=True,
            timeout=HELM_SECONDS,
            check=False,
            env=self._env,
        )
        assert done.returncode == 0, done.stderr


def audit_arguments(folder: Path) -> list[str]:
    """Have an API server write down what service accounts ask for."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "audit-policy.json"
    policy.write_text(json.dumps(AUDIT_POLICY))
    return [f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"]


def rights_used(folder: Path, namespace: str, account: str, decision: str = "allow") -> set[Right]:
    """Give what this account asked for and was let do; discovery and questions about rights do not count.

    With the decision `forbid`, what it was not let do.
    """
    user = f"system:serviceaccount:{namespace}:{account}"
    whole = (folder / "audit.log").read_text().rpartition("\n")[0]  # the last line may be half written
    events = map(json.loads, whole.splitlines())
    return {
        (event["verb"], about.get("apiGroup", ""), _with(about["resource"], about.get("subresource")))
        for event in events
        if event["user"]["username"] == user
        and (about := event.get("objectRef")) is not None
        and "resource" in about
        and about.get("apiGroup") != "authorization.k8s.io"
        and event["annotations"]["authorization.k8s.io/decision"] == decision
    }


def rights_given(objects: list[dict[str, Any]], account: str) -> set[Right]:
    """Give what the rendered roles that are bound to this account allow."""
    bound = {(kind, name) for kind, name, _ in _bound(objects, account)}
    roles = [role for role in objects if (role["kind"], role["metadata"]["name"]) in bound]
    return {right for role in roles for rule in role["rules"] for right in _expanded(rule)}


def wait_for_rights(plane: ControlPlane, namespace: str, account: str, objects: list[dict[str, Any]]) -> None:
    """Wait until the API server knows every rendered role and binding of an account.

    It takes up each of them by itself, a moment after it was made.
    """
    user, places = f"system:serviceaccount:{namespace}:{account}", _bound(objects, account)
    for role in objects:
        about = role["metadata"]
        if (role["kind"], about["name"], about.get("namespace", "")) in places:
            for rule in role["rules"]:
                asked = partial(_may, plane, user, rule, about.get("namespace", ""))
                wait_until(asked, f"{role['kind']} {about['name']} in force", 60)


def _bound(objects: list[dict[str, Any]], account: str) -> set[tuple[str, str, str]]:
    """Give kind, name and namespace of the roles that are bound to an account."""
    return {
        (binding["roleRef"]["kind"], binding["roleRef"]["name"], binding["metadata"].get("namespace", ""))
        for binding in objects
        if binding["kind"] in {"ClusterRoleBinding", "RoleBinding"}
        and any(subject["name"] == account for subject in binding["subjects"])
    }


def _may(plane: ControlPlane, user: str, rule: Mapping[str, Any], namespace: str) -> bool:
    """Ask the API server whether a rule holds for a user."""
    resource, _, subresource = rule["resources"][0].partition("/")
    what = {"verb": rule["verbs"][0], "group": rule["apiGroups"][0], "resource": resource}
    where = {"namespace": namespace, "subresource": subresource, "name": rule.get("resourceNames", [""])[0]}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": what | where},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(plane.api.create(path, review)["status"]["allowed"])


def _expanded(rule: Mapping[str, Any]) -> Iterator[Right]:
    for verb in rule["verbs"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield verb, group, resource


def _with(resource: str, subresource: str | None) -> str:
    return f"{resource}/{subresource}" if subresource else resource
