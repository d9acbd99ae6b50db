"""OffsetCommit: the generation fences, and offsets are stored."""

from coopgroup.member import ErrorCode
from coopgroup.model.group_api import OffsetCommitAnswer
from tests.support.simulated import DrivenCoordinator, commit, join


def code_of(answer: OffsetCommitAnswer) -> int:
    ((topic, partition, code),) = answer.codes
    assert (topic, partition) == ("T", 0)
    return code


def test_commit_of_the_generation_is_kept() -> None:
    group = DrivenCoordinator()
    leader, other = group.stable_group(None, None)
    generation = group.coordinator.group.generation
    assert code_of(group.ask(commit(leader, generation, 7), OffsetCommitAnswer)) == 0
    group.send(join(leader))
    assert code_of(group.ask(commit(other, generation, 9), OffsetCommitAnswer)) == 0
    assert group.coordinator.committed == {("T", 0): 9}


def test_commit_between_join_and_sync_must_wait() -> None:
    """The generation is new, but its assignment is not known yet."""
    group = DrivenCoordinator()
    (leader,) = group.stable_group(None)
    generation = group.joined(group.send(join(leader))).generation
    answer = group.ask(commit(leader, generation), OffsetCommitAnswer)
    assert code_of(answer) == ErrorCode.REBALANCE_IN_PROGRESS
    stale = group.ask(commit(leader, generation - 1), OffsetCommitAnswer)
    assert code_of(stale) == ErrorCode.ILLEGAL_GENERATION
    assert group.coordinator.committed == {}


def test_commit_without_a_member_is_taken_while_the_group_is_empty() -> None:
    """For example from a consumer that assigns its own partitions."""
    group = DrivenCoordinator()
    assert code_of(group.ask(commit("", -1), OffsetCommitAnswer)) == 0
    group.stable_group(None)
    answer = group.ask(commit("", -1), OffsetCommitAnswer)
    assert code_of(answer) == ErrorCode.UNKNOWN_MEMBER_ID
