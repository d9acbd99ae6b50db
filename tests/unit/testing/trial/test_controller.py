"""Processes under control, on the broker inside the confluent-kafka wheel."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import evolve

from coopgroup.errors import ConfigurationError
from coopgroup.testing.trial import Facts, Trial, TrialError, measure
from coopgroup.testing.trial.brokers import Stage, open_stage

PARTITIONS = 4


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """One mock broker for all tests of this file."""
    with open_stage("mock", PARTITIONS, lambda _line: None) as opened:
        yield opened


@pytest.fixture
def trial(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Trial]:
    """A trial on topics of its own."""
    with Trial(
        client_config=stage.client_config,
        topics=[request.node.name],
        partitions_per_topic=stage.partitions_per_topic,
    ) as running:
        yield running


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for something that has to come true within seconds."""
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_stopped(pid: int) -> bool:
    """Whether the kernel holds a process in the state T."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_trial_when_played_measures_what_was_consumed(trial: Trial) -> None:
    """Backlog and pace: all of it, once, by one member."""
    trial.start_producer(rate_per_partition=20, backlog=(40, 30, 20, 10))
    group = trial.group("eager")
    with trial.window() as opened:
        group.start("m1")
        assert group.wait_settled(quiet_s=0.5)
        trial.finish()
    facts = measure(group.log(), opened.window)
    produced = len(trial.acknowledged())
    assert produced >= 100
    assert evolve(facts, commits=0, commit_ms_max=0.0, pause_ms_max=0.0) == Facts(
        consumed=produced,
        lost=0,
        duplicated=0,
        moved=0,
        moved_twice=0,
        retained=0,
        retained_pause_ms_max=0.0,
        pause_ms_max=0.0,
        unavailable_partition_s=facts.unavailable_partition_s,
        double_owner_ms=0.0,
        double_owner_transitions=0,
        commits=0,
        failed_commits=0,
        commit_ms_max=0.0,
    )
    assert [log.member for log in group.watch.logs] == ["m1"]


def test_group_when_members_are_frozen_killed_and_replaced_keeps_their_names(
    trial: Trial,
) -> None:
    """A member's name outlives its processes."""
    group = trial.group("eager")
    group.prepare("m1", "m2")
    group.start("m1", "m2")
    first = group.member("m1").process.pid
    group.freeze("m1")
    wait_until(lambda: is_stopped(first))
    group.resume("m1")
    wait_until(lambda: not is_stopped(first))
    group.kill("m1")
    assert (group.living, group.names) == (("m2",), ("m1", "m2"))
    group.start("m1")
    assert group.member("m1").process.pid != first
    assert group.living == ("m1", "m2")
    assert [incarnation.member for incarnation in group.incarnations] == ["m1", "m2", "m1"]


def test_trial_when_closed_leaves_neither_process_nor_folder(stage: Stage) -> None:
    """Prepared members and frozen ones end, too."""
    with Trial(client_config=stage.client_config, topics=["x"], partitions_per_topic=4) as trial:
        trial.start_producer(rate_per_partition=5)
        group = trial.group("eager")
        group.start("m1")
        group.freeze("m1")
        group.prepare("m2")
        processes = [incarnation.process for incarnation in group.incarnations]
    assert [process.poll() for process in processes] == [-signal.SIGKILL] * 2
    assert not trial.folder.exists()


def test_group_when_a_member_fails_tells_its_last_words(trial: Trial) -> None:
    """The error has the line that the process ended with."""
    group = trial.group("eager", extra_config={"no.such.key": 1})
    group.start("m1")
    with pytest.raises(TrialError, match=r"m1 ended with status 1: .*no\.such\.key"):
        group.wait_stopped("m1")
    with pytest.raises(TrialError, match=r"m1 ended with status 1: .*no\.such\.key"):
        group.wait_settled()


def test_group_when_a_member_is_unknown_says_so(trial: Trial) -> None:
    """A scenario with a misspelt name fails at once."""
    with pytest.raises(TrialError, match="eager-0 has no member m9"):
        trial.group("eager").stop("m9")


def test_trial_when_the_kind_is_unknown_refuses_it(trial: Trial) -> None:
    """Before any process starts."""
    with pytest.raises(ConfigurationError, match="kind: got 'lazy'"):
        trial.group("lazy")


def test_window_when_still_open_has_no_end(trial: Trial) -> None:
    """Facts of a window need its end."""
    with trial.window() as opened, pytest.raises(TrialError, match="still open"):
        _ = opened.window
    assert opened.window.length_s >= 0


def test_worker_when_its_controller_dies_ends_by_itself(trial: Trial) -> None:
    """The end of standard input is all that a worker needs to know."""
    group = trial.group("eager")
    group.start("m1")
    process = group.member("m1").process
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(20) == 0
