"""What cAdvisor's labels are called in a Prometheus is said on the command line."""

from typing import Any

import pytest

from equipoise.core.errors import BadInput
from equipoise.runtime.metrics_source import PrometheusOptions, prometheus_metrics
from tests.support.cli.running import equipoise

URL = "http://127.0.0.1:9"


def _names(*labels: str) -> Any:
    nobody: Any = None  # an address was given, so that no cluster is asked
    return prometheus_metrics(nobody, PrometheusOptions(url=URL, labels=labels)).names


def test_labels_keep_their_names_unless_others_are_given() -> None:
    """One, or all of them."""
    assert _names().labels == ("namespace", "pod", "container")
    assert _names("pod=pod_name").labels == ("namespace", "pod_name", "container")
    assert _names("container=c", "namespace=ns", "pod=p").labels == ("ns", "p", "c")


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("pod", "--prometheus-label: expected NAME=VALUE, got 'pod'"),
        ("node=n", "--prometheus-label: expected namespace, pod or container, got 'node'"),
        ("pod=a b", "expected a label name, got 'a b'"),
        ("pod=namespace", "expected three different names"),
    ],
)
def test_a_label_that_cannot_be_is_refused(label: str, said: str) -> None:
    """Before anything is asked."""
    with pytest.raises(BadInput, match=said.replace("(", r"\(")):
        _names(label)


def test_a_header_that_cannot_be_is_refused_without_its_secret() -> None:
    """Whoever writes a colon, as HTTP does, has a token in it."""
    nobody: Any = None
    with pytest.raises(BadInput) as caught:
        prometheus_metrics(nobody, PrometheusOptions(url=URL, headers=("Authorization: Bearer hush",)))
    assert str(caught.value) == "--prometheus-header: expected NAME=VALUE, got another text"


def test_every_command_that_reads_usage_takes_it() -> None:
    """The help of each names it."""
    for command in (
        ("rotation", "plan"),
        ("recommendation", "plan"),
        ("recommendation", "apply"),
        ("doctor",),
    ):
        assert "--prometheus-label" in equipoise(*command, "--help").stdout
