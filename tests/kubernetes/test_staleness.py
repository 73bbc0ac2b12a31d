"""What nobody tells of any more is not believed for ever, and nothing is sent long after the last look."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from equipoise.adapters.kubernetes import KubernetesCluster
from equipoise.adapters.kubernetes.apply import MANAGER, OWNER_LABEL, KubernetesApplier
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import ApiError, Unreachable
from equipoise.adapters.kubernetes.kinds import PODS
from equipoise.adapters.kubernetes.objects import PRESENT_SECONDS, Discovery
from equipoise.adapters.kubernetes.pauses import PAUSED, NamespacePauses
from equipoise.adapters.kubernetes.reflector import Reflector
from equipoise.adapters.kubernetes.sizes import KubernetesSizes
from equipoise.adapters.kubernetes.structs import RawPod
from equipoise.core.cluster import ObjectRef, Pod, PodRef, WorkloadRef
from equipoise.ports import ApplyAnswer, ApplyResult
from tests.support.contracts.applier_facts import wanted
from tests.support.kubernetes.reflected_kinds import KEPT, Looking, policies
from tests.support.kubernetes.samples import page, pod
from tests.support.kubernetes.scripted import DEPLOYMENT, HPAS, WEB, Scripted
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session
from tests.testbed.processes import wait_until

OLD_SECONDS = 301.0
BOOKMARK = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "8"}}}\n'
ROLLOUT = WorkloadRef("argoproj.io/v1alpha1", "Rollout", "shop", "web")


class Kinds:
    """A server that has one policy, and from some moment on refuses to tell of it."""

    def __init__(self) -> None:
        self.refusal: tuple[int, str] | None = None
        self.bookmark = b""
        self.items: list[dict[str, Any]] = [
            {
                "metadata": {"name": "web", "namespace": "shop", "uid": "uid-1", "resourceVersion": "7"},
                "spec": {"mode": "Enforce"},
            }
        ]

    def script(self, asked: Asked, stage: Stage) -> None:
        if "customresourcedefinitions" in asked.path:
            version = {"name": "v1alpha1", "served": True, "subresources": {"status": {}}}
            stage.answer({"metadata": {"labels": {OWNER_LABEL: MANAGER}}, "spec": {"versions": [version]}})
        elif self.refusal is not None:
            stage.refuse(*self.refusal, "no more")
        elif asked.query.get("watch"):
            stage.begin()
            if self.bookmark:
                stage.chunk(self.bookmark)
            stage.end()
        else:
            stage.answer({"metadata": {"resourceVersion": "7"}, "items": self.items})


@pytest.mark.parametrize("make", KEPT)
def test_policies_that_nobody_tells_of_any_more_are_unknown(
    make: Callable[[Client], tuple[Reflector[Any], Looking]],
) -> None:
    """An Enforce that may long be a Preview is followed no more, and it is said why."""
    kinds, time = Kinds(), Time()
    with playing(kinds.script) as player, session(player.url, world=time.world(0.0)) as client:
        reflector, look = make(client)
        try:
            reflector.step()
            assert [one.spec["mode"] for one in look()] == ["Enforce"]
            kinds.refusal = (403, "Forbidden")
            time.sleep(OLD_SECONDS)
            reflector.step()
            with pytest.raises(Unreachable, match=r"301 s old; the limit is 300 s: .*403 Forbidden"):
                look()
            kinds.refusal, kinds.bookmark = None, BOOKMARK
            reflector.step()
            assert len(look()) == 1
        finally:
            reflector.stop()


@pytest.mark.parametrize("is_empty", [True, False])
def test_of_a_kind_that_was_removed_there_is_nothing_once_its_objects_are_gone(is_empty: bool) -> None:
    """Whose removal was not seen may still be there as far as anybody can tell."""
    kinds, time = Kinds(), Time()
    if is_empty:
        kinds.items = []
    with playing(kinds.script) as player, session(player.url, world=time.world(0.0)) as client:
        reflector, look = policies(client)
        try:
            reflector.step()
            kinds.refusal = (404, "")
            time.sleep(OLD_SECONDS)
            reflector.step()
            if is_empty:
                assert look() == []
            else:
                with pytest.raises(Unreachable):
                    look()
        finally:
            reflector.stop()


def test_an_event_that_cannot_be_taken_leads_to_a_new_list_whatever_is_wrong_with_it() -> None:
    """Otherwise the same event would come for ever, and the cache seem fresh while it is not."""
    lists: list[int] = []

    def turn(decoder: Decoder, raw: RawPod) -> Pod:
        if raw.metadata.resourceVersion == "8":
            raise KeyError("nobody thought of this")
        return decoder.pod(raw)

    def script(asked: Asked, stage: Stage) -> None:
        if asked.query.get("watch"):
            stage.begin()
            if asked.query["resourceVersion"] == "7":
                body = {"type": "MODIFIED", "object": pod(version="8")}
                stage.chunk(json.dumps(body).encode() + b"\n")
            stage.end()
            return
        lists.append(1)
        version = "7" if len(lists) == 1 else "9"
        stage.answer(page([pod(version=version)], version))

    with playing(script) as player, session(player.url, world=Time().world(0.0)) as client:
        reflector = Reflector(client, replace(PODS, decode=turn))
        try:
            reflector.step()
            assert isinstance(reflector.last_error, KeyError)
            reflector.step()
            assert [one.resource_version for one in reflector.cache.records()] == ["9"]
        finally:
            reflector.stop()


@pytest.mark.parametrize("end", [Stage.end, Stage.cut])
def test_watches_that_end_at_once_are_no_word_of_the_server(end: Callable[[Stage], None]) -> None:
    """Something in between cuts them off: what has changed meanwhile is never told."""
    kinds, time, looks = Kinds(), Time(), list[str]()

    def script(asked: Asked, stage: Stage) -> None:
        if not asked.query.get("watch"):
            return kinds.script(asked, stage)
        stage.begin()
        wait_until(lambda: reflector.counters.watches > len(looks), "the watch to be noticed", 60)
        looks.append(said())
        return end(stage)

    def said() -> str:
        try:
            return str([one.spec["mode"] for one in look()])
        except Unreachable as error:
            return str(error)

    with playing(script) as player, session(player.url, world=time.world(0.0)) as client:
        reflector, look = policies(client)
        try:
            reflector.step()
            for _ in range(4):
                time.sleep(OLD_SECONDS / 4)
                assert reflector.step() > 0.0
            with pytest.raises(Unreachable, match="301 s old; the limit is 300 s"):
                look()
        finally:
            reflector.stop()
    assert looks[:4] == ["['Enforce']"] * 4
    assert "301 s old" in looks[4], "also while such a watch is open"


@pytest.mark.parametrize("end", [Stage.end, Stage.cut])
def test_a_watch_that_lasted_is_word_of_the_server_though_it_brought_nothing(
    end: Callable[[Stage], None],
) -> None:
    """What had changed before it began would have been told at once."""
    kinds, time, ages = Kinds(), Time(), list[float]()

    def script(asked: Asked, stage: Stage) -> None:
        if not (asked.query.get("watch") and reflector.counters.watches):
            return kinds.script(asked, stage)
        stage.begin()
        wait_until(lambda: reflector.counters.watches == 2, "the watch to be noticed", 60)
        for seconds in (0.5, 0.5, 59.0):
            time.sleep(seconds)
            ages.append(reflector.last_contact_age_seconds(time.now))
        return end(stage)

    with playing(script) as player, session(player.url, world=time.world(0.0)) as client:
        reflector, _ = policies(client)
        try:
            reflector.step()
            time.sleep(200.0)
            reflector.step()
            age_seconds = reflector.last_contact_age_seconds(time.now)
        finally:
            reflector.stop()
    assert ages == [200.5, 1.0, 60.0]
    assert age_seconds == (0.0 if end is Stage.end else 60.0)


DEPLOYED = {"metadata": {"name": "web", "uid": "uid-3"}}
SERVER = Scripted(**{f"GET {DEPLOYMENT}": DEPLOYED, f"PATCH {DEPLOYMENT}": DEPLOYED})
VALUES = {"dns": {"requests": {"cpu": "300m"}}}
POD = PodRef("shop", "dns-1", "uid-1")
LOG = ObjectRef("apps/v1", "DaemonSet", "shop", "log", "uid-2")


def _sizes(client: Client) -> KubernetesSizes:
    return KubernetesSizes(client, KubernetesCluster(client))


@pytest.mark.parametrize(
    "deed",
    [
        lambda client: _sizes(client).resize(POD, VALUES),
        lambda client: _sizes(client).set_template(LOG, VALUES),
        lambda client: KubernetesApplier(client).apply_hpa(wanted(WEB)),
        lambda client: KubernetesApplier(client).annotate(WEB, {"note": "1"}),
    ],
    ids=["a pod", "a template", "an HPA", "an annotation"],
)
@pytest.mark.parametrize("after", ["", "20"])
def test_a_deed_is_not_sent_again_long_after_it_was_asked_whether_it_may_be_done(
    deed: Callable[[Client], object], after: str
) -> None:
    """Somebody may have said stop since, and another may lead: both are asked again before the next try."""
    time, sent_at = Time(), list[float]()

    def script(asked: Asked, stage: Stage) -> None:
        if asked.method == "PATCH":
            sent_at.append(time.now)
            stage.refuse(503, "ServiceUnavailable", "busy", **({"Retry_After": after} if after else {}))
        else:
            SERVER.script(asked, stage)

    world = time.world(0.99)
    with playing(script) as player, session(player.url, world=world) as client, pytest.raises(ApiError):
        deed(client)
    assert max(sent_at) - sent_at[0] <= 3.0
    assert (len(sent_at) > 1) is not bool(after)


@pytest.mark.parametrize(
    ("deed", "asked_for"),
    [
        (lambda applier: applier.apply_hpa(wanted(WEB)), f"{HPAS}/web"),
        (lambda applier: applier.annotate(WEB, {"note": "1"}), DEPLOYMENT),
    ],
    ids=["an HPA", "an annotation"],
)
def test_a_deed_is_not_sent_long_after_it_was_asked_whether_it_may_be_done(
    deed: Callable[[KubernetesApplier], ApplyAnswer], asked_for: str
) -> None:
    """Where it took long to see what is there, nothing is sent, and it can be asked at once again."""
    time, busy, sent = Time(), [503], list[str]()

    def script(asked: Asked, stage: Stage) -> None:
        if asked.method == "PATCH":
            sent.append(asked.path)
        if asked.path == asked_for and asked.method == "GET" and busy:
            stage.refuse(busy.pop(), "ServiceUnavailable", "busy", Retry_After="15")
        else:
            SERVER.script(asked, stage)

    with playing(script) as player, session(player.url, world=time.world()) as client:
        applier = KubernetesApplier(client)
        answer = deed(applier)
        assert answer.result is ApplyResult.LATE
        assert "took 15 s to answer, so nothing was sent" in answer.detail
        assert sent == []
        assert deed(applier).result in {ApplyResult.CREATED, ApplyResult.CHANGED}
        assert len(sent) == 1


def test_whose_a_pod_is_is_told_by_itself_and_not_by_another_that_names_the_same_uid() -> None:
    """Anybody may write any UID into a pod of his own namespace."""
    forged, real = pod("forged", "evil"), pod("web-1")
    forged["metadata"]["ownerReferences"][0] |= {"kind": "Node", "name": "node-1"}
    decoder = Decoder()
    owners = [decoder.pod(PODS.decode_object(json.dumps(each).encode())).owner for each in (forged, real)]
    assert [owner.kind for owner in owners if owner is not None] == ["Node", "ReplicaSet"]


@pytest.mark.parametrize(
    ("ref", "said", "is_gone"),
    [
        (WEB, (404, "NotFound", 'deployments.apps "web" not found'), True),
        (WEB, (404, "", "default backend - 404"), False),
        (ROLLOUT, (404, "", "404 page not found"), True),
    ],
)
def test_a_workload_is_gone_only_when_the_api_server_itself_says_so(
    ref: WorkloadRef, said: tuple[int, str, str], is_gone: bool
) -> None:
    """Something that stands before the server knows nothing of it; a kind may have gone with its objects."""

    def script(asked: Asked, stage: Stage) -> None:
        if asked.path == "/apis/argoproj.io/v1alpha1":
            names = ("rollouts", "rollouts/scale")
            found = [{"name": name, "kind": "Rollout", "namespaced": True} for name in names]
            stage.answer({"resources": found})
        else:
            stage.refuse(*said)

    with playing(script) as player, session(player.url) as client:
        cluster = KubernetesCluster(client)
        if is_gone:
            assert cluster.workload(ref) is None
        else:
            with pytest.raises(ApiError, match="404"):
                cluster.workload(ref)


def test_a_kind_that_can_be_scaled_since_lately_is_found_out() -> None:
    """An upgrade of its definition is no reason to restart whoever looks at it."""
    time, names = Time(), ["rollouts"]

    def script(asked: Asked, stage: Stage) -> None:
        assert asked.path == "/apis/argoproj.io/v1alpha1"
        found = [{"name": name, "kind": "Rollout", "namespaced": True} for name in names]
        stage.answer({"resources": found})

    with playing(script) as player, session(player.url, world=time.world()) as client:
        discovery = Discovery(client)

        def has_scale() -> bool:
            found = discovery.find(ROLLOUT.api_version, ROLLOUT.kind)
            return found is not None and found.has_scale

        assert not has_scale()
        names.append("rollouts/scale")
        time.sleep(PRESENT_SECONDS - 1)
        assert not has_scale()
        time.sleep(1)
        assert has_scale()
        assert len(player.asked) == 2


def test_whoever_said_stop_is_not_overheard_where_every_watch_is_cut_off() -> None:
    """Nobody knows whether anything is paused then, which holds everything."""
    time = Time()
    shop: dict[str, Any] = {"metadata": {"name": "shop", "uid": "uid-1", "resourceVersion": "7"}}

    def script(asked: Asked, stage: Stage) -> None:
        if asked.query.get("watch"):
            stage.begin()
            stage.cut()
        else:
            stage.answer({"metadata": {"resourceVersion": "7"}, "items": [shop]})

    with playing(script) as player, session(player.url, world=time.world(0.0)) as client:
        pauses = NamespacePauses(client)
        try:
            pauses.reflector.step()
            assert pauses.pause_of("shop") is None
            shop["metadata"]["annotations"] = {PAUSED: "a person"}
            for _ in range(6):
                time.sleep(1.0)
                pauses.reflector.step()
            with pytest.raises(Unreachable, match="it is unknown whether Equipoise is paused"):
                pauses.pause_of("shop")
        finally:
            pauses.reflector.stop()
