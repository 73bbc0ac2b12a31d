"""A ledger in the API server may say anything: it is read and goes on, or is one unknown ledger."""

import contextlib
import copy
import json
from typing import Any

import msgspec

from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Entry, EntryState, Ledger
from equipoise.rotation.progress import load_memory
from tests.support.damage import HOSTILE, paths

NOON = 1_790_000_000.0
COURSE = {
    "round": "r1",
    "beganAt": NOON,
    "waveAt": NOON,
    "waves": 1,
    "planned": 2,
    "predictedPercent": 10.0,
    "hottestCores": 1.5,
}
VERDICT = {
    "ending": "UsedUp",
    "endedAt": NOON,
    "rotatedAt": NOON,
    "waves": 1,
    "evicted": 1,
    "predictedPercent": 10.0,
}
SOUND: dict[str, Any] = json.loads(
    json.dumps(
        Ledger(
            epoch=7,
            entries=(Entry("e1", "r1", "rotation", "EvictPod", "web-1", "u1", NOON, 7, EntryState.INTENT),),
            entries_total=1,
            memory={"rotation": {"course": COURSE, "last": VERDICT, "failures": 1, "futileUntil": NOON}},
            epochs={"rotation": 7},
        ).to_data()
    )
)


def _hostile() -> list[Any]:
    """Return the values that the decoder of all answers lets through."""
    found = []
    for value in HOSTILE:
        with contextlib.suppress(ValueError, RecursionError):
            found.append(msgspec.json.decode(value))
    return found


def test_a_ledger_with_any_value_in_any_place_is_read_and_goes_on_or_is_unknown() -> None:
    """What can be read can be written again, settled, counted and recalled."""
    new = Entry("e2", "r2", "rotation", "EvictPod", "web-2", "u2", NOON + 60, 8)
    tried = unknown = 0
    for path in paths(SOUND):
        for value in _hostile():
            document: Any = copy.deepcopy(SOUND)
            place = document
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            tried += 1
            try:
                ledger = Ledger.from_data(document)
                load_memory(ledger)
            except WorldFailed:
                unknown += 1
                continue
            settled = ledger.reconciled([], NOON + 60)
            grown = (
                settled.with_intent(new, {"failures": 0}) if settled.epoch_of("rotation") <= 8 else settled
            )
            assert msgspec.json.encode(grown.to_data())
            assert grown.rounds_since(NOON - 3600, "rotation") >= 0
            assert Ledger.from_data(grown.to_data()).entries_total == grown.entries_total
    assert tried > 1000
    assert tried / 10 < unknown < tried
