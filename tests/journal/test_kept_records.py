"""Records of real runs of every balancer: what was decided then is decided now, to the last bit."""

import pytest

from equipoise.cli.replay import replay
from equipoise.core.decision import Record
from tests.fixtures.kept import BALANCERS, FOLDER, kept
from tests.fixtures.take import BYTES_MAX, PLACES, RECORDS_MAX


@pytest.mark.parametrize("balancer", BALANCERS)
def test_what_a_real_run_decided_is_decided_again(balancer: str) -> None:
    """By the same door that `journal replay` uses."""
    records = kept(balancer)
    answer = replay(records)
    assert [one.sentence for one in answer.different] == []
    assert (answer.same, answer.without_inputs) == (len(records), 0)


@pytest.mark.parametrize("balancer", BALANCERS)
def test_the_kept_records_are_few_and_of_that_balancer_and_some_were_acted_on(balancer: str) -> None:
    """Small enough for everybody's checkout, and nothing in them tells where they were taken."""
    records = kept(balancer)
    text = (FOLDER / f"{balancer}.jsonl").read_bytes()
    assert {record.balancer for record in records} == {balancer}
    assert 3 <= len(records) <= RECORDS_MAX
    assert len(text) <= BYTES_MAX
    assert any(record.outcomes for record in records)
    assert not PLACES.search(text)
    assert [Record.from_json(record.to_json()) for record in records] == list(records)
