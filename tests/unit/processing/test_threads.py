"""Processing in worker threads, turned by hand, on a consumer that plays a script."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coopgroup import ProcessingError
from coopgroup.errors import ConfigurationError
from coopgroup.processing import Limits, Stop, process
from coopgroup.processing.running import Timing
from coopgroup.processing.scheduler import Scheduler
from coopgroup.processing.threads import ThreadProcessing
from tests.support.fake_records import FakeRecord
from tests.unit.processing.stage import Make, Story, ThreadGroup, made_in, records


@pytest.fixture
def make() -> Iterator[Make]:
    with made_in(ThreadGroup) as maker:
        yield maker


def test_close_waits_for_the_records_in_progress(make: Make) -> None:
    group = make(*records(0, 2))
    group.hold((0, 0))

    def story() -> Story:
        group.consumer.is_closing = True
        group.release()  # it ends while the revocation waits for it
        group.revoke(0)
        assert group.consumer.given_up["t", 0] == 1
        yield

    group.play(story())


def test_record_lost_by_its_own_handler_does_not_count(make: Make) -> None:
    group = make(*records(0, 2))

    def lose(message: FakeRecord) -> None:
        group.handle(message)
        group.lose(0)

    group.handler = lose
    group.play()
    assert (group.handled, group.consumer.stored) == ([(0, 0)], {})


def test_bytes_may_pass_their_limit_by_one_record(make: Make) -> None:
    """Its size is not known before."""
    script = [FakeRecord(at=at, its_value=bytes(1_000)) for at in range(100)]
    group = make(*script, limits=Limits(bytes=10_500))
    group.hold((0, 0))

    def story() -> Story:
        for _ in range(3):
            yield
            assert len(group.consumer.script) == 100 - 11
        group.release()
        yield
        assert len(group.handled) == 100

    group.play(story())


@pytest.mark.parametrize(("error", "is_complete"), [(OSError, True), (KeyboardInterrupt, False)])
def test_exception_in_a_poll_ends_processing_with_what_was_handled(
    make: Make, error: type[BaseException], *, is_complete: bool
) -> None:
    """At Ctrl-C a record may have been on its way: a commit of positions would pass it."""
    group = make(*records(0, 2))

    def story() -> Story:
        yield
        raise error

    with pytest.raises(error):
        group.play(story())
    assert group.consumer.stored == {("t", 0): 2}
    assert group.consumer.automatic is is_complete


def test_record_that_gets_no_thread_is_not_passed(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = make(*records(0, 1))

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    began_s = group.hand.now_s
    with monkeypatch.context() as patch:
        patch.setattr("coopgroup.worker.Worker.submit", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            group.play()
    assert group.hand.now_s == began_s
    assert group.consumer.seeks == [("t", 0, 0)]


def test_consumer_is_processed_once_at_a_time(make: Make) -> None:
    group = make()

    def story() -> Story:
        with pytest.raises(ConfigurationError, match="not processed already"):
            process(group.consumer, print)
        yield

    group.play(story())


def test_partition_whose_handler_never_ends_has_its_on_revoke(make: Make) -> None:
    group = make(*records(0, 2))
    revoked: list[int] = []
    group.consumer.callbacks.on_revoke = lambda _, them: revoked.extend(
        one.partition for one in them
    )
    group.hold((0, 0))
    timing = Timing(group.stop, 100, hands_over=True)
    scheduler = Scheduler("partition", Limits())
    processing = ThreadProcessing(group.consumer, group.handle, Stop(), scheduler, timing, 4)
    group.play(run=processing.run)
    assert sorted(revoked) == [0, 1, 2]
    assert group.consumer.given_up["t", 0] is None
    assert group.consumer.warned == ["handler_takes_too_long"]


def test_coroutine_of_a_handler_in_a_thread_does_not_count_as_handled(make: Make) -> None:
    async def work() -> None: ...

    def handle(_: FakeRecord) -> object:
        return work()

    group = make(*records(0, 1))
    group.handler = handle
    with pytest.raises(ProcessingError, match="coroutines need an AsyncCooperativeConsumer"):
        group.play()
    assert group.consumer.stored == {}


def test_offsets_of_handled_records_are_committed_at_the_end(make: Make) -> None:
    """The consumer has no position after the seek, so a later `close` commits nothing."""
    group = make(*records(0, 900))

    def handle(message: FakeRecord) -> None:
        group.handle(message)
        if message.offset() == 1:
            group.stop.set()

    group.handler = handle
    group.play()
    assert group.handled == [(0, 0), (0, 1), (0, 2)]  # the third one had begun
    assert group.consumer.committed == {("t", 0): 3}
    assert group.consumer.seeks == [("t", 0, 3)]
    assert group.consumer.automatic


def test_exception_of_a_callback_at_the_end_cuts_off_no_record_in_flight(make: Make) -> None:
    """Otherwise its handler runs beside the next call of `process`, within its time."""
    group = make(*records(0, 1))

    def on_revoke(*_: object) -> None:
        raise OSError("disk full")

    group.consumer.callbacks.on_revoke = on_revoke
    group.hold((0, 0))

    def story() -> Story:
        yield
        group.stop.set()
        yield
        group.release()
        group.revoke(1)

    with pytest.raises(OSError, match="disk full"):
        group.play(story())
    assert group.handled == [(0, 0)]
    assert group.consumer.stored == {("t", 0): 1}
