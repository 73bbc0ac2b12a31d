"""What clients send to a server of ours, and what tenants write into policies, ledgers and status."""

import atexit
import json
import socket
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from typing import Any

from equipoise.adapters.kubernetes.kinds import DEPLOYMENTS, list_kind
from equipoise.core.errors import DECODE_ERRORS, BadInput, EquipoiseError, WorldFailed
from equipoise.core.ledger import Ledger
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import RejectedPolicy
from equipoise.pools.registration import PodLists, RegistrationRule, reconcile
from equipoise.ports import PolicyObject
from equipoise.proportional.applied import PolicyMemory, PolicyState
from equipoise.proportional.observe import PolicyCache
from equipoise.proportional.smoothing import ProportionalMemory
from equipoise.recommendation.analytics import ConditionValue, Selected, _moment, is_due, select
from equipoise.rotation.progress import RotationMemory, load_memory
from equipoise.rotation.status import assign, next_status
from equipoise.runtime.agent.node_api import read_objects
from equipoise.runtime.allocator.operations import OPERATIONS, read_question
from tests.support.fuzz.answers import Answering, always, beside, page
from tests.support.fuzz.kubernetes import _policy_kind
from tests.support.fuzz.machine import Input, NeighbourLost, Reader
from tests.support.fuzz.objects import ABOUT, SOUND, named
from tests.support.pools.serving import service

QUESTION = b'{"call":"c1","pod":"","tier":"gold"}'
POST = (
    b"POST /v1/allocate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
)
CHUNKED = POST.partition(b"Content-Length")[0] + b"Transfer-Encoding: chunked\r\n\r\n"
REQUESTS = (
    POST % (len(QUESTION), QUESTION),
    b"GET /v1/status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nAccept: */*\r\n\r\n",
    CHUNKED + b'11\r\n{"pod":"web-1"   \r\n1\r\n}\r\n0\r\n\r\n',
)
CLOSED_SECONDS = 30.0
AT = 1_790_000_000.0
WORKLOAD = list_kind(
    Answering(always(page(SOUND["Deployment"].replace(b'"web"', b'"nginx-deployment"')))), DEPLOYMENTS
).records[0]


@cache
def _port() -> int:
    """Serve until the process ends; no Redis stands behind it."""
    stack = ExitStack()
    atexit.register(stack.close)
    caller, _ = stack.enter_context(service("unix:///nowhere/redis.sock", timeout_seconds=1.0))
    return caller.port


def _request(given: Input) -> None:
    """Send bytes to the real server: it answers with HTTP, and closes; an error of ours would be a 500."""
    with socket.create_connection(("127.0.0.1", _port()), CLOSED_SECONDS) as one:
        answer = b""
        with suppress(OSError):  # it has been closed already
            one.sendall(given.data)
            one.shutdown(socket.SHUT_WR)
        with suppress(ConnectionError):
            while part := one.recv(65536):
                answer += part
    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:100]
    status = answer[9:12]
    assert status != b"500", answer[:300]
    if status != b"200":
        raise EquipoiseError(f"status {status.decode('ascii', 'replace') or 'none'}")


def _question(given: Input) -> None:
    for operation in OPERATIONS:
        try:
            read_question(operation, given.data)
        except (BadInput, *DECODE_ERRORS) as error:
            refused = error
        else:
            return
    raise BadInput(" ".join(str(refused).split()) or type(refused).__name__) from refused


def _policies(name: str) -> Reader:
    """Make a reader of what one kind of policy asks for, beside a healthy one of another namespace."""
    kind = _policy_kind(name)
    sound = SOUND[name]
    healthy = named(sound)

    def read(given: Input) -> None:
        listed = list_kind(Answering(always(beside(given, healthy))), kind).records
        policies: list[PolicyObject] = list(listed)
        isolation = Isolation()
        isolation.begin(AT)
        wrong = _judged(name, policies, isolation)
        if isolation.failed:
            raise NeighbourLost(f"{name}: {isolation.failed[0].error}\n{isolation.failed[0].traceback}")
        if any("neighbour" in one for one in wrong) and given.is_stored:
            raise NeighbourLost(str(wrong)[:300])
        if wrong:
            raise BadInput(" ".join(wrong[0].split()))

    return Reader(f"what is asked for: {name}", (), read, (sound,))


def _judged(name: str, policies: list[PolicyObject], isolation: Isolation) -> list[str]:
    """Return what is wrong with each, with its name, in the words of its balancer."""
    match name:
        case "RotationPolicy":
            _, refused = assign(policies, [], isolation)
            for one in policies:
                with suppress(WorldFailed):
                    next_status(one, [], refused.get(one.ref), AT)
            bad = {ref.name: refusal for ref, refusal in refused.items() if refusal.code != "NoWorkload"}
            return [f"{which}: {refusal.sentence}" for which, refusal in bad.items()]
        case "ScalingPolicy":
            read = PolicyCache().read(policies, isolation)
            for one in policies:
                with suppress(*DECODE_ERRORS):
                    ProportionalMemory.from_data(dict(one.status))
            return [
                f"{ref.name}: {one.sentence}" for ref, one in read.items() if isinstance(one, RejectedPolicy)
            ]
        case "Analytics":
            chosen = [(about, select(about, [WORKLOAD])) for about in policies]
            for about, selected in chosen:
                _moment(about.status.get("lastUpdateTime"))
                if isinstance(selected, Selected):
                    is_due(selected, [], AT, 1.0, lambda *_: False)
            said = [(about, one) for about, one in chosen if isinstance(one, ConditionValue)]
            return [f"{about.ref.name}: {one}" for about, one in said if "FailedSelect" not in str(one)]
    actions = list_kind(
        Answering(always(page(SOUND["AvoidanceAction"]))), _policy_kind("AvoidanceAction")
    ).records
    named_ = [replace(one, ref=one.ref._replace(name="throttle")) for one in actions]
    return list(read_objects([*policies, *named_])[1])


def _ledger(given: Input) -> None:
    try:
        document: Any = json.loads(given.data)
    except (ValueError, RecursionError) as error:
        raise BadInput("not JSON") from error
    data = document.get("data") if isinstance(document, dict) else None
    ledger = Ledger.from_data(data if isinstance(data, dict) else {"entries": data})
    load_memory(ledger)
    ledger.reconciled([], AT).rounds_since(AT, "rotation")
    assert ledger.to_data() is not None


def _memory(given: Input) -> None:
    try:
        document: Any = json.loads(given.data)
        known = document if isinstance(document, dict) else {"course": document}
        PolicyState.of(PolicyObject(ABOUT, 1, "7", {}, {"memory": known}))
        for kind in (RotationMemory, ProportionalMemory):
            kind.from_data(known)
        memory = PolicyMemory.from_data(known)
        memory._replace(applied=memory.applied_to(WORKLOAD, 1)).to_data()
        reconcile(RegistrationRule(), PodLists("voice/pods", (), ()), known, AT)
    except (WorldFailed, *DECODE_ERRORS) as error:
        raise BadInput(" ".join(str(error).split())[:1000] or type(error).__name__) from error


def readers() -> list[Reader]:
    """Return the readers of requests, policies and ledgers."""
    kinds = (
        "RotationPolicy",
        "ScalingPolicy",
        "Analytics",
        "NodeQOSEnsurancePolicy",
        "AvoidanceAction",
        "PodQOS",
    )
    memory = json.dumps(json.loads(SOUND["Ledger"])["data"]["memory"]["rotation"]).encode()
    return [
        Reader("pools serve: requests", REQUESTS, _request, is_slow=True, refuses=True),
        Reader("pools serve: questions", (), _question, (QUESTION, b'{"pod":"web-1","uid":"u"}')),
        *map(_policies, kinds),
        Reader("ledger", (), _ledger, (SOUND["Ledger"],)),
        Reader("memory of a balancer", (), _memory, (memory,)),
    ]
