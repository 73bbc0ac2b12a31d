"""A slice of the fuzz that `make soak` runs for longer, and that no reader is missing from it."""

import ast
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from equipoise.adapters.kubernetes.decode import parse_time
from tests.support.fuzz.all_readers import all_readers
from tests.support.fuzz.files import CREDENTIAL, KUBECONFIG
from tests.support.fuzz.machine import Input, Reader, inputs, run
from tests.support.fuzz.objects import SOUND
from tests.support.fuzz.prometheus import MESSAGE as CHUNKS
from tests.support.source_tree import DECODING, ROOT, SOURCES, called, functions

INPUTS = 12
"""For each reader; `python -m tests.soak.readers` has thousands."""
LOOKED_AT = 10
READERS = all_readers()
OWN = {
    "adapters/kubernetes/actions.py:bounded": "our own sentence",
    "adapters/prometheus/metrics.py:_covered": "takes apart what is decoded already",
    "runtime/agent/state.py:is_over": "loads what StateFile.load reads",
    "runtime/agent/run.py:clean_up": "loads what StateFile.load reads",
    "runtime/agent/run.py:run": "loads what StateFile.load reads",
    "cli/completion.py:_listed": "a completion is silent, whatever is answered",
    "core/reason.py:explanations": "our own file",
    "cli/help.py:examples": "our own file",
    "cli/journal.py:list_records": "our own record, as it is printed",
    "recommendation/explain.py:of": "our own decision's document",
    "runtime/operator/worker.py:_answer": "our own worker wrote it",
    "runtime/operator/worker.py:_error": "our own worker wrote it",
    "runtime/operator/worker.py:submit": "our own worker wrote it",
    "runtime/logs.py:_text": "our own line",
    "dashboard/server.py:__call__": "our own answer, in ASCII",
    "dashboard/server.py:_refusal": "Latin 1 takes every byte",
    "dashboard/server.py:_unknown": "Latin 1 takes every byte",
    "engine/isolation.py:_encodable": "our own text",
    "qos/loop.py:state": "loads what StateFile.load reads",
}
"""What decodes nothing foreign, or by what is listed itself, and why."""


def _sound(reader: Reader) -> list[Input]:
    count = len(reader.objects) + len(reader.sound)
    return [given for given, _ in zip(inputs(reader, 0), range(count), strict=False)]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_a_reader_reads_what_is_sound_and_refuses_the_rest_with_a_sentence(reader: Reader) -> None:
    """Damaged input costs a sentence, and never an error that nobody foresaw or a healthy neighbour."""
    if not reader.refuses:
        for given in _sound(reader):
            reader.read(given)
    (figures,) = run([reader], seed=19, count=INPUTS)
    assert list(figures.finds.values()) == []
    assert figures.inputs == figures.read + figures.refused


BY_NAME = {one.name: one for one in READERS}
NODE, DEFINITION = "Node to be marked", "CustomResourceDefinition of ours"
OURS = b'"labels":{"app.kubernetes.io/managed-by":"equipoise"}'
FOUND: dict[str, tuple[str, bytes]] = {
    "conditions that are words": (
        NODE,
        b'{"metadata":{"resourceVersion":"7"},"status":{"conditions":[true]}}',
    ),
    "taints that are a number": (NODE, b'{"metadata":{"resourceVersion":"7"},"spec":{"taints":7}}'),
    "a node whose spec is text": (NODE, b'{"metadata":{"resourceVersion":"7"},"spec":"x"}'),
    "a definition of ours without a spec": (DEFINITION, b'{"metadata":{"resourceVersion":"7",%s}}' % OURS),
    "a definition whose labels are a list": (DEFINITION, b'{"metadata":{"labels":[1]},"spec":{}}'),
    "API groups that are nothing": ("API groups and versions", b'{"gitVersion":"v1","groups":null}'),
    "a Status that asks to wait for ever": (
        "refusals of an API server",
        b'{"kind":"Status","details":{"retryAfterSeconds":1%s}}' % (b"0" * 400),
    ),
    "an HPA of ours without a UID": (
        "HPA before it is applied",
        SOUND["HorizontalPodAutoscaler"].replace(b'"uid": "u-web", ', b""),
    ),
    "a Service of 70,000 letters": (
        "Services and Prometheus objects",
        b'{"metadata":{"name":"k8s","namespace":"monitoring"},"spec":{"serviceName":"%s"}}' % (b"a" * 70_000),
    ),
    "usage of a pod whose namespace is a list": (
        "list of pod metrics (metrics.k8s.io)",
        b'{"metadata":{"name":"web","namespace":[null]},"timestamp":"","containers":[]}',
    ),
    "a label that is not UTF-8": (
        "remote read: chunks in sound frames",
        CHUNKS.replace(b"web-1", b"we\xcd-1"),
    ),
    "a password that is not UTF-8": (
        "Prometheus: address and headers",
        b"https://u:p\xe3@prometheus:9090/ t",
    ),
    "a snapshot with a list for a key": (
        "Redis: pages of a snapshot",
        b'["{\\"gold\\":1}","7",[],1,[0,["x"],"list"],[],[],[]]',
    ),
    "an answer that no script of ours gives": ("Redis: replies of scripts", b'["a-0","gold",""]'),
    "a namespace that is not UTF-8": ("service account of a pod", b"shop\xed"),
    "a proxy without a scheme": ("kubeconfig", KUBECONFIG.replace(b"http://p:3128", b"p:3128")),
    "an empty line among pressures": ("cgroup and /proc files", b"pressure/cpu|some avg10=0.12\n\n"),
    "a word of a plugin with a NUL": ("exec plugin: run", CREDENTIAL + b"\0"),
    "a command of two lines": ("exec plugin: how it is called", b"plu\ngin\xed a b"),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_the_fuzz_found_once_is_read_or_refused_with_a_sentence(case: str) -> None:
    """Each of these ended in an unforeseen error, a whole list lost, or a sentence of pages."""
    name, data = FOUND[case]
    reader = BY_NAME[name]._replace(
        objects=(data,) if BY_NAME[name].objects else (), sound=() if BY_NAME[name].objects else (data,)
    )
    (figures,) = run([reader], seed=0, count=1)
    assert list(figures.finds.values()) == []


def _decoders() -> Iterator[str]:
    """Yield the functions of the product that decode what somebody else wrote."""
    for path in SOURCES:
        if not path.is_relative_to(ROOT / "src") or path.is_relative_to(ROOT / "src/equipoise/sim"):
            continue
        for function in functions(ast.parse(path.read_text())):
            if called(function) & DECODING:
                yield f"{path.relative_to(ROOT / 'src/equipoise')}:{function.name}"


def _reached() -> set[str]:
    """Return the functions of the product that the readers come through on sound input."""
    seen: set[CodeType] = set()
    parse_time.cache_clear()  # other tests have read the same times

    def note(frame: FrameType, event: str, argument: Any) -> None:
        seen.add(frame.f_code)

    threading.setprofile(note)
    try:
        for reader in READERS:
            for given, _ in zip(inputs(reader, 0), range(LOOKED_AT), strict=False):
                sys.setprofile(note)  # a stack that is used up ends it
                try:
                    reader.read(given)
                except Exception:  # noqa: BLE001 - the other test judges it
                    continue
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    product = str(ROOT / "src/equipoise")
    return {
        f"{Path(code.co_filename).relative_to(product)}:{code.co_name}"
        for code in seen
        if code.co_filename.startswith(product)
    }


def test_whatever_decodes_is_reached_by_the_fuzz() -> None:
    """A new reader of foreign data gets an entry in `tests/fuzz`, or a reason here why it needs none."""
    decoders = set(_decoders())
    assert sorted(decoders - _reached() - set(OWN)) == [], "add a reader to tests/fuzz"
    assert sorted(set(OWN) - decoders) == []
