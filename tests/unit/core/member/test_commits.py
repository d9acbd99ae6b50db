"""Commits: ordered, merged, kept through rounds, and never of another member's partitions."""

from collections import Counter
from collections.abc import Callable

import attrs
import pytest

from coopgroup.core.member import ErrorCode, MemberState, RequestKind, next_deadline_ms
from coopgroup.core.member.chain import WIDTH, Chain
from coopgroup.core.member.commits import Commits, enqueue, settle, take_batch
from coopgroup.core.member.effects import Lane
from coopgroup.core.member.error_actions import Action
from coopgroup.core.member.events import (
    CommitRequested,
    LossHandled,
    Offset,
    RevocationCompleted,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import OffsetCommitAnswer, OffsetCommitRequest
from tests.support.members import (
    CONFIG,
    HELD,
    DrivenMember,
    configured,
    losing,
    rejoining,
    revoking,
    stable,
    static,
)

COMMIT = RequestKind.OFFSET_COMMIT
HEARTBEAT_MS = CONFIG.heartbeat_interval_ms
BEGUN = ErrorCode.REBALANCE_IN_PROGRESS


def commit(commit_id: int, *offsets: tuple[int, int]) -> CommitRequested:
    return CommitRequested(
        commit_id=commit_id, offsets=tuple(Offset("T", p, o) for p, o in offsets)
    )


def answer(*codes: tuple[int, int]) -> OffsetCommitAnswer:
    return OffsetCommitAnswer(codes=tuple(("T", partition, code) for partition, code in codes))


def committed(driven: DrivenMember) -> tuple[int, dict[int, int]]:
    request = driven.request(COMMIT).request
    assert isinstance(request, OffsetCommitRequest)
    return request.generation, {row[1]: row[2] for row in request.offsets}


def test_commit_when_stable_goes_out_at_once_on_its_own_lane() -> None:
    driven = stable().give(commit(1, (0, 10)))
    send = driven.request(COMMIT)
    assert send.lane is Lane.COMMIT
    assert send.request == OffsetCommitRequest(
        group_id="g",
        generation=1,
        member_id="m",
        group_instance_id=None,
        offsets=(("T", 0, 10, -1, ""),),
    )
    driven.answer(COMMIT, answer((0, 0)))
    assert driven.finished() == [(1, {0: 0})]


def test_commits_when_one_is_under_way_wait_and_are_merged() -> None:
    """One request at a time. The newest offset of a partition wins, every caller is answered."""
    driven = stable().give(commit(1, (0, 10))).give(commit(2, (0, 20), (1, 5)))
    assert driven.sent() == []
    driven.give(commit(3, (0, 30))).answer(COMMIT, answer((0, 0)))
    assert driven.finished() == [(1, {0: 0})]
    assert committed(driven) == (1, {0: 30, 1: 5})
    driven.answer(COMMIT, answer((0, 0), (1, 0)))
    assert driven.finished() == [(2, {0: 0, 1: 0}), (3, {0: 0})]
    assert driven.sent() == []


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION])
def test_commit_when_it_meets_a_round_is_retried_for_what_is_still_owned(code: ErrorCode) -> None:
    driven = rejoining().give(commit(1, (0, 10), (1, 20))).join(2)
    driven.answer(COMMIT, answer((0, code), (1, code)))
    assert driven.effects == ()
    driven.sync(ResourceSet({"T": [0]}), follow_up=True)
    assert committed(driven) == (2, {0: 10, 1: 20})  # T-1 is owned until it has stopped
    driven.answer(COMMIT, answer((0, 0), (1, 0))).give(RevocationCompleted(resources=HELD))
    assert committed(driven.give(commit(1, (0, 30), (1, 40)))) == (2, {0: 30})
    driven.join(3).answer(COMMIT, answer((0, code)))
    assert committed(driven.sync(ResourceSet({"T": [0]}))) == (3, {0: 30})
    driven.answer(COMMIT, answer((0, 0)))
    assert driven.finished() == [(1, {0: 0, 1: ErrorCode.ILLEGAL_GENERATION})]


def test_commit_when_nothing_of_it_is_owned_any_more_ends_unsent() -> None:
    """A late offset must never overwrite the new owner's offset."""
    driven = revoking().give(RevocationCompleted(resources=HELD)).give(commit(1, (1, 20)))
    assert driven.finished() == [(1, {1: ErrorCode.ILLEGAL_GENERATION})]
    assert driven.sent() == []


def test_commit_when_not_in_the_group_is_refused_at_once() -> None:
    driven = losing().give(commit(1, (1, 2), (0, 1)))
    code = int(ErrorCode.UNKNOWN_MEMBER_ID)
    assert (driven.finished(), driven.sent()) == ([(1, {0: code, 1: code})], [])


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, MemberState.LOSING),
        (ErrorCode.FENCED_INSTANCE_ID, MemberState.FAILED),
    ],
)
def test_commit_when_the_member_is_fenced_ends_the_membership(
    code: ErrorCode, state: MemberState
) -> None:
    driven = stable().give(commit(1, (0, 10))).answer(COMMIT, answer((0, code)))
    assert driven.member.state is state
    assert driven.lost() == [HELD]
    assert driven.finished() == [(1, {0: code})]


def test_commit_when_attempts_run_out_gives_the_last_error_to_the_caller() -> None:
    driven = configured(stable(), commit_attempts_max=6, session_timeout_ms=60_000)
    lease = attrs.evolve(driven.member.lease, until_ms=100_000)
    driven.member = attrs.evolve(driven.member, lease=lease)
    driven.give(commit(1, (0, 10)))
    waits = []
    while not driven.finished():
        driven.answer(COMMIT, answer((0, ErrorCode.KAFKA_STORAGE_ERROR)))
        if driven.member.commits.queue:
            waits.append(driven.member.commits.back_off.until_ms - driven.now_ms)
            driven.wait(waits[-1])
    assert waits == [100, 200, 400, 800, 1_000]
    assert driven.finished() == [(1, {0: ErrorCode.KAFKA_STORAGE_ERROR})]


def test_commit_of_a_partition_that_the_answer_leaves_out_is_refused() -> None:
    driven = stable().give(commit(1, (0, 10), (1, 20))).answer(COMMIT, answer((0, 0)))
    assert driven.finished() == [(1, {0: 0, 1: ErrorCode.UNKNOWN_SERVER_ERROR})]


TIMED_OUT = int(ErrorCode.REQUEST_TIMED_OUT)


TIMEOUT_MS = CONFIG.request_timeout_ms


def silent() -> DrivenMember:
    """Its heartbeats are far apart, so no answer proves that the coordinator is alive."""
    return configured(stable(), session_timeout_ms=60_000, heartbeat_interval_ms=50_000).heartbeat()


def test_commit_when_its_caller_waits_no_longer_is_not_sent() -> None:
    driven = stable().give(commit(1, (0, 10)))
    limited = attrs.evolve(commit(2, (0, 20), (1, 5)), until_ms=driven.now_ms + 40)
    driven.give(limited).give(commit(3, (0, 15)))
    assert next_deadline_ms(driven.member) == driven.now_ms + 40
    assert driven.wait(39).effects == ()
    driven.wait(1)
    assert (driven.finished(), driven.sent()) == ([(2, {0: TIMED_OUT, 1: TIMED_OUT})], [])
    driven.answer(COMMIT, answer((0, 0)))
    assert driven.finished() == [(1, {0: 0})]
    assert committed(driven) == (1, {0: 15})


def test_commit_when_its_callers_limit_is_over_before_it_arrives_is_not_sent() -> None:
    driven = stable()
    driven.give(attrs.evolve(commit(1, (0, 10)), until_ms=driven.now_ms))
    assert (driven.finished(), driven.sent()) == ([(1, {0: TIMED_OUT})], [])


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_commit_when_it_times_out_under_way_ends_once_and_is_not_tried_again(
    code: ErrorCode,
) -> None:
    """Its fate is unknown until the answer, and the next commit waits for that."""
    driven = silent().give(commit(1, (0, 10), (1, 5)))
    driven.wait(1_000).give(commit(2, (0, 20)))
    assert next_deadline_ms(driven.member) == driven.now_ms + TIMEOUT_MS - 1_000
    driven.wait(TIMEOUT_MS - 1_000)
    assert (driven.finished(), driven.sent()) == ([(1, {0: TIMED_OUT, 1: TIMED_OUT})], [])
    assert next_deadline_ms(driven.member) == driven.now_ms + 1_000
    driven.answer(COMMIT, answer((0, code), (1, code)))
    assert driven.finished() == []
    if code:
        driven.wait(CONFIG.retry_backoff_ms)
    assert committed(driven) == (1, {0: 20})
    driven.answer(COMMIT, answer((0, 0)))
    assert driven.finished() == [(2, {0: 0})]
    assert driven.wait(2 * TIMEOUT_MS).effects == ()


def test_commit_when_the_coordinator_answers_may_wait_for_the_end_of_a_round() -> None:
    driven = configured(rejoining(), session_timeout_ms=60_000).give(commit(1, (0, 10))).join(2)
    driven.answer(COMMIT, answer((0, ErrorCode.REBALANCE_IN_PROGRESS)))
    for _ in range(5):
        driven.heartbeat().wait(TIMEOUT_MS - 1)
        assert driven.finished() == []
    assert driven.wait(1).finished() == [(1, {0: TIMED_OUT})]
    assert COMMIT not in driven.sync().member.outstanding


def test_commits_when_they_time_out_together_are_looked_at_once() -> None:
    """The member checks in each step. If it looked at each commit, commits would be quadratic."""
    count = 3_000
    driven = silent()
    for commit_id in range(count):
        driven.give(commit(commit_id, (0, commit_id)))
    assert len(driven.wait(TIMEOUT_MS).finished()) == count
    queue = driven.member.commits.queue
    assert [pending.commit_id for pending in queue] == [0]  # it is under way
    driven.give(commit(count, (0, count)))
    assert driven.member.commits.due_at_ms == driven.now_ms + TIMEOUT_MS


def test_commit_of_an_earlier_life_is_not_sent_when_its_partition_comes_back() -> None:
    """Another member may have committed a later offset in between."""
    driven = losing().give(LossHandled()).give(commit(1, (0, 10))).join(5).sync()
    assert driven.finished() == [(1, {0: ErrorCode.ILLEGAL_GENERATION})]
    assert COMMIT not in driven.member.outstanding


def begun(driven: DrivenMember) -> DrivenMember:
    return driven.give(commit(1, (0, 10)))


def unanswered(driven: DrivenMember) -> DrivenMember:
    """A commit got no answer; the coordinator was found again, and the commit was repeated."""
    return begun(driven).refuse(COMMIT, ErrorCode.NO_ANSWER).find().wait(HEARTBEAT_MS)


LIVES: dict[str, tuple[Callable[[DrivenMember], DrivenMember], str]] = {
    "no commit": (lambda one: one, "m"),
    "under way": (begun, ""),
    "answered": (lambda one: begun(one).answer(COMMIT, answer((0, 0))), "m"),
    "without an answer": (lambda one: begun(one).refuse(COMMIT, ErrorCode.NO_ANSWER), ""),
    "a later request was accepted": (
        lambda one: unanswered(one).answer(COMMIT, answer((0, 0))),
        "m",
    ),
    "a later request was refused": (
        lambda one: unanswered(one).answer(COMMIT, answer((0, ErrorCode.NOT_COORDINATOR))),
        "",
    ),
    "in a newer generation": (
        lambda driven: unanswered(driven).heartbeat(BEGUN).join(2).sync(),
        "m",
    ),
}


@pytest.mark.parametrize(("life", "member_id"), LIVES.values(), ids=LIVES)
def test_member_joins_without_its_id_when_a_commit_of_its_generation_may_come_late(
    life: Callable[[DrivenMember], DrivenMember], member_id: str
) -> None:
    """With its id it could return to the same generation, where the late commit counts."""
    driven = life(static(stable()))
    driven.wait(driven.member.config.session_timeout_ms)
    assert driven.member.state is MemberState.LOSING
    driven.give(LossHandled())
    if driven.member.coordinator is None:
        driven.find()
    assert driven.sent_join().member_id == member_id


def test_20_000_commits_while_no_answer_comes_cost_as_much_each_as_a_few() -> None:
    count = 20_000
    commits, written = Commits(), 0
    for commit_id in range(count):
        before = {id(level) for level in commits.queue.levels}
        event = commit(commit_id, (commit_id % 2, commit_id))
        commits = enqueue(commits, event, now_ms=0, timeout_ms=TIMEOUT_MS)
        written += sum(len(level) for level in commits.queue.levels if id(level) not in before)
    assert written < count * WIDTH
    commits, sent, finished = take_batch(commits, HELD)
    assert (sent, finished) == ((Offset("T", 0, count - 2), Offset("T", 1, count - 1)), ())
    asked = Counter[int]()

    def code_of(_: str, partition: int) -> int:
        asked[partition] += 1
        return 0

    commits, finished, actions = settle(commits, code_of, 10)
    assert asked == {0: count // 2, 1: count // 2}
    assert [commit_id for commit_id, _ in finished] == list(range(count))
    assert (commits, actions) == (Commits(), frozenset({Action.PROCEED}))


def test_commit_without_an_answer_is_waited_for_until_the_lease_is_over() -> None:
    """A frozen coordinator may serve it after newer commits of the same generation."""
    driven = stable()
    send = driven.give(commit(1, (0, 10))).request(COMMIT)
    until_ms = driven.now_ms + send.timeout_ms
    driven.heartbeat()  # the last one that is answered, sent right after the commit
    assert until_ms >= driven.member.lease.until_ms
    assert send.timeout_ms >= driven.member.config.request_timeout_ms


@pytest.mark.parametrize(
    "size", [0, 1, WIDTH - 1, WIDTH, WIDTH + 1, WIDTH**2 - 1, WIDTH**2, WIDTH**2 + WIDTH + 1]
)
def test_queue_holds_its_commits_in_order(size: int) -> None:
    grown: Chain[int] = Chain()
    for item in range(size):
        grown = grown.append(item)
    assert tuple(grown) == tuple(range(size))
    assert (grown, hash(grown)) == (Chain.of(range(size)), hash(Chain.of(range(size))))
    assert bool(grown) == bool(size)
