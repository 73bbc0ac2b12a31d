"""Two judges, one law: what the models accept, the schema accepts."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.crd.definition import DefinedKind, schema_of
from equipoise.crd.manifest import problems, refusals, without_nulls
from equipoise.crd.status import LEDGER
from equipoise.rotation.policy import ROTATION_POLICY
from tests.support.crd.manifests import AT, ENTRY, WORKLOAD, ledger, policy

SCHEMAS = {kind.name: schema_of(kind) for kind in (LEDGER, ROTATION_POLICY)}
ODD = st.sampled_from([None, True, "", "x", "2", 0, -1, 1.5, 10**30, [], {}, [1], {"a": 1}, "5m\n", "é"])
WHOLE = st.integers(-1, 5) | st.sampled_from([2**31 - 1, 2**31])
NUMBER = st.floats(-1, 200, allow_nan=False) | st.integers(-1, 200)
SPAN = (
    st.from_regex(r"[0-9]{1,3}(ms|s|m|h|d|w)[0-9]{0,2}[smh]?", fullmatch=True)
    | st.sampled_from(["1.5h", "90", "1h30m", "366d", "367d", "1e3", " 5m", "\uff15m"])
    | st.integers(-1, 10**9)
    | st.floats(0, 1e5)
)
WORD = st.text("aB-./_0 ", max_size=5) | st.sampled_from(["web", "example.com/tier", "x" * 64])
TEXT = st.text(max_size=8)
SCHEDULE = st.sampled_from(["0 2 * * *", "0 2 * * 1-5\n", "*/5 * * * MON", "0  2 1 1 0", "60 * * * *", "L"])
ZONE = st.sampled_from(["UTC", "Europe/Berlin", "Etc/GMT+1", "europe/berlin", "localtime"])


def _maybe(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Give mappings with some of these keys; one value in eight is odd."""
    mixed = {name: st.one_of(*[part] * 7, ODD) for name, part in parts.items()}
    return st.fixed_dictionaries({}, optional=mixed)


TARGETS = _maybe(
    apiVersion=st.sampled_from(["apps/v1", "v1", "a.b/v1beta2", "apps", "v1\n"]),
    kind=st.sampled_from(["Deployment", "Rollout", "deployment"]),
    name=WORD,
)
TERMS = _maybe(key=WORD, operator=st.sampled_from(["In", "NotIn", "Exists", "Has"]), values=st.lists(WORD))
SPECS = _maybe(
    targetRef=TARGETS,
    selector=_maybe(matchLabels=st.dictionaries(WORD, WORD, max_size=2), matchExpressions=st.lists(TERMS)),
    mode=st.sampled_from(["Preview", "Enforce", "enforce"]),
    topK=WHOLE,
    toleranceMultiplier=NUMBER,
    minimumImprovementPercent=NUMBER,
    metricsWindow=SPAN,
    minPodAge=SPAN,
    cooldown=SPAN,
    hpaPrefix=TEXT,
    hpaMetricName=TEXT,
    kafkaLag=_maybe(enabled=st.booleans(), threshold=NUMBER, query=TEXT),
    windows=st.lists(_maybe(schedule=SCHEDULE, duration=SPAN, timeZone=ZONE), max_size=2),
    includeStatefulSets=st.booleans(),
)
TIMES = st.sampled_from([AT, "2026-02-30T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00.5+14:00"])
ENTRIES = st.lists(
    _maybe(id=WORD, state=st.sampled_from(["Intent", "Done", "done"]), at=TIMES, epoch=WHOLE).map(
        lambda part: ENTRY | part
    ),
    max_size=3,
)
LEDGERS = _maybe(epoch=WHOLE, entries=ENTRIES, entriesTotal=WHOLE, memory=st.just({"a": [1]})).map(
    lambda part: {"workload": WORKLOAD} | part
)


def _assert_agreed(kind: DefinedKind, document: dict[str, Any]) -> bool:
    """Tell whether it was accepted; and if so, that the schema accepts it too."""
    if problems(kind, document):
        return False
    schema = SCHEMAS[kind.name]
    known = {key: part for key, part in document.items() if key != "metadata"}
    assert list(refusals(schema, without_nulls(schema, known))) == []
    return True


@settings(max_examples=400, deadline=None)
@given(SPECS)
def test_what_the_model_of_a_policy_accepts_the_schema_accepts(spec: dict[str, Any]) -> None:
    """Odd values included."""
    _assert_agreed(ROTATION_POLICY, policy(spec))


@settings(max_examples=200, deadline=None)
@given(LEDGERS)
def test_what_the_model_of_a_ledger_accepts_the_schema_accepts(data: dict[str, Any]) -> None:
    """Odd values included."""
    _assert_agreed(LEDGER, ledger(data))


PARTS = st.sampled_from(
    [
        ("topK", WHOLE),
        ("toleranceMultiplier", NUMBER),
        ("metricsWindow", SPAN),
        ("cooldown", SPAN | ODD),
        ("hpaMetricName", TEXT | ODD),
        ("mode", ODD | st.just("Enforce")),
        ("selector", st.none()),
        ("windows", st.lists(_maybe(schedule=SCHEDULE, duration=SPAN, timeZone=ZONE), max_size=2)),
        ("kafkaLag", _maybe(enabled=st.booleans(), threshold=NUMBER, query=TEXT)),
    ]
).flatmap(lambda part: part[1].map(lambda value: {part[0]: value}))


def test_the_property_is_not_empty() -> None:
    """With one odd field at a time, many documents are accepted, and many are not."""
    verdicts: list[bool] = []

    @settings(max_examples=300, deadline=None, database=None, derandomize=True)
    @given(PARTS)
    def judge(part: dict[str, Any]) -> None:
        spec = {"targetRef": {"kind": "Deployment", "name": "web"}} | part
        verdicts.append(_assert_agreed(ROTATION_POLICY, policy(spec)))

    judge()
    assert min(verdicts.count(True), verdicts.count(False)) > 40
