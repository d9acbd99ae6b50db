"""All records of a group, combined into one value."""

from coopgroup.core.model import ResourceSet
from coopgroup.report.history import facts_of, history_of
from coopgroup.telemetry import OffsetsCommitted
from tests.unit.report.histories import Story, scale_up_with_warmups


def test_only_who_worked_is_a_client() -> None:
    story = Story()
    story.start(0, "idle")
    story.work(1, "b", ResourceSet({"orders": [0]}))
    story.work(1, "a", ResourceSet({"orders": [1]}))
    story.write(5, "ghost", OffsetsCommitted(resources=ResourceSet({"orders": [0]}), offsets=(1,)))
    ledger = history_of(story.envelopes).ledger
    assert ledger.clients == ("a", "b")
    assert ledger.work.owner.tolist() == [1, 0]
    assert ledger.until_ms == 5


def test_warm_ups_are_spans_and_counted() -> None:
    """A member that only warms up has a colour, too."""
    records = scale_up_with_warmups(6)
    found = facts_of(history_of(records))
    assert (found.warmups, found.moved_warm) == (6, 3)
    before_the_move = history_of([one for one in records if one.at_ms < 21_000])
    assert before_the_move.ledger.clients == ("c-1", "c-2")
    assert len(before_the_move.ledger.warm_spans) == 6
