"""Which workload the series of a file are of.

An answer of Prometheus has pods, and a wide CSV file has columns. A workload that is asked for has those of
its name, and those whose names begin with it and `-`; they are added up. Where none is asked for, a pod is of
the workload that Kubernetes would name it after, and a column is a workload of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from equipoise.core.cluster import deployment_of_pod, workload_of_pod
from equipoise.core.errors import BadInput
from equipoise.recommendation.observe import Observation
from equipoise.stats.ranks import Whole
from equipoise.stats.samples import Samples, Shape, WordNumbers

NAMED_MAX = 4


class _Owner(NamedTuple):
    """A workload, as the rows of a file are given to it."""

    namespace: str
    name: str


def with_owners(samples: Samples, workloads: Sequence[str], source: str) -> Samples:
    """Return samples whose rows name their workload, or that are of one workload without any label."""
    labels = samples.labels
    shape = samples.shape
    if shape is Shape.ROWS and "workload" in labels and "pod" not in labels:
        own = dict(labels) | {"pod": labels["workload"]}
        return replace(
            samples,
            labels=own,
            names=dict(samples.names) | {"pod": samples.names["workload"]},
            shape=Shape.TOTALS,
        )
    if shape is Shape.ROWS and "pod" in labels and "workload" not in labels and workloads:
        shape = Shape.PODS
    if shape not in {Shape.PODS, Shape.COLUMNS}:
        return samples
    if not len(samples.times):
        return replace(samples, labels={}, names={}, shape=Shape.ROWS)
    return _assigned(replace(samples, shape=shape), workloads, source)


def _assigned(samples: Samples, workloads: Sequence[str], source: str) -> Samples:
    pods, spaces = samples.names["pod"], samples.names.get("namespace", [""])
    space = samples.labels.get("namespace", np.zeros(len(samples.times), np.intp))
    keys, which = np.unique(space * len(pods) + samples.labels["pod"], return_inverse=True)
    series = [_Owner(spaces[key // len(pods)], pods[key % len(pods)]) for key in keys.tolist()]
    notes: tuple[str, ...] = ()
    if workloads:
        owners, notes = _claimed(series, workloads, source)
    elif samples.shape is Shape.COLUMNS:
        owners = list(series)
    else:
        owners = [_Owner(one.namespace, workload_of_pod(one.name)) for one in series]
    is_kept = np.array([owner is not None for owner in owners], np.bool_)[which]
    notes += tuple(_note_of_names(samples, series, owners, source, is_asked=bool(workloads)))
    is_total = samples.shape is Shape.COLUMNS and all(
        owner is None or owner.name == one.name for one, owner in zip(series, owners, strict=True)
    )
    numbers: WordNumbers = {}
    places: WordNumbers = {}
    work = [-1 if owner is None else numbers.setdefault(owner.name, len(numbers)) for owner in owners]
    place = [0 if owner is None else places.setdefault(owner.namespace, len(places)) for owner in owners]
    labels: dict[str, Whole] = {
        "namespace": np.array(place, np.intp)[which],
        "workload": np.array(work, np.intp)[which],
        "pod": samples.labels["pod"],
    }
    names: dict[str, Sequence[str]] = {"namespace": list(places), "workload": list(numbers), "pod": pods}
    shape = Shape.TOTALS if is_total else Shape.ROWS
    if set(places) == {""}:
        del labels["namespace"], names["namespace"]
    if is_total and len(workloads) == 1:  # the usage of a workload, as a file of one workload has it
        labels, names, shape = {}, {}, Shape.ROWS
    found = replace(samples, labels=labels, names=names, shape=shape, notes=(*samples.notes, *notes))
    return found if is_kept.all() else found.only(is_kept)


def _claimed(
    series: Sequence[_Owner], workloads: Sequence[str], source: str
) -> tuple[list[_Owner | None], tuple[str, ...]]:
    """Return the owner of each series among the workloads that are asked for; None for all others."""
    parts = (text.rpartition("/") for text in workloads)
    claims = sorted((_Owner(space, name) for space, _, name in parts), key=lambda one: -len(one.name))
    owners = [_claim(one, claims) for one in series]
    notes = []
    for claim in claims:
        rows = [row for row, owner in enumerate(owners) if owner is not None and owner.name == claim.name]
        if not rows:
            raise BadInput(
                f"{source}: expected pods or columns named {claim.name} or {claim.name}-…, got "
                f"{_listed([one.name for one in series])}"
            )
        others = [row for row in rows if deployment_of_pod(series[row].name) not in {"", claim.name}]
        if others and len(others) < len(rows):
            for row in others:
                owners[row] = None
            named = _listed(sorted({deployment_of_pod(series[row].name) for row in others}))
            pods = "1 pod" if len(others) == 1 else f"{len(others)} pods"
            notes.append(f"{source}: ignored {pods} of {named}, whose names begin with {claim.name}-, too")
    return owners, tuple(notes)


def _claim(one: _Owner, claims: Sequence[_Owner]) -> _Owner | None:
    for claim in claims:
        is_there = not claim.namespace or not one.namespace or claim.namespace == one.namespace
        if is_there and (one.name == claim.name or one.name.startswith(f"{claim.name}-")):
            return _Owner(one.namespace or claim.namespace, claim.name)
    return None


def _note_of_names(
    samples: Samples,
    series: Sequence[_Owner],
    owners: Sequence[_Owner | None],
    source: str,
    *,
    is_asked: bool,
) -> Iterator[str]:
    """Yield what was guessed from names, where no workload was asked for."""
    if is_asked:
        return
    if samples.shape is Shape.PODS:
        found = sorted({owner.name for owner in owners if owner is not None})
        pods = "1 pod is" if len(series) == 1 else f"{len(series)} pods are"
        hint = "by their names; WORKLOAD chooses one"
        yield f"{source}: names no workloads; {pods} taken as those of {_listed(found)}, {hint}"
        return
    names = [one.name for one in series if deployment_of_pod(one.name)]
    if names:
        name = deployment_of_pod(names[0])
        yield (
            f"{source}: each column is taken as a workload, but {names[0]} looks like a pod: give the "
            f"workload {name} to have its pods added up"
        )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(name[:60] for name in names[:NAMED_MAX])}{more}"


def per_replica(observation: Observation) -> Observation:
    """Return an observation of totals, in which a pod uses an equal share of its workload."""
    shares = np.maximum(observation.replicas, 1)
    own = observation.containers
    assert own is not None, "a file's workloads have one container each"
    assert observation.pod_p99_cores is not None, "a file of many has the usage of pods"
    each = replace(own, cpu_cores=own.cpu_cores / shares, memory_peak_bytes=own.memory_peak_bytes / shares)
    return replace(observation, pod_p99_cores=observation.pod_p99_cores / shares, containers=each)
