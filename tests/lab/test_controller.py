"""Processes of a trial, on the broker inside the confluent-kafka wheel."""

from __future__ import annotations

import os
import signal

import pytest
from attrs import evolve

from tests.lab.analysis import Facts, measure
from tests.lab.controller import Trial
from tests.lab.processes import TrialError

NOTHING = Facts(
    consumed=0,
    lost=0,
    duplicated=0,
    moved=0,
    moved_twice=0,
    retained=0,
    retained_pause_ms_max=0.0,
    pause_ms_max=0.0,
    unavailable_partition_s=0.0,
    double_owner_ms=0.0,
    double_owner_transitions=0,
    commits=0,
    failed_commits=0,
    commit_ms_max=0.0,
)


def test_trial_when_played_measures_what_was_consumed(trial: Trial) -> None:
    trial.start_producer(rate_per_partition=20, backlog=(40, 30, 20, 10))
    group = trial.group("eager")
    with trial.window() as opened:
        group.start("m1")
        assert group.wait_settled(quiet_s=0.5)
        trial.finish()
    facts = measure(group.log(), opened.window)
    produced = len(trial.acknowledged())
    assert produced >= 100
    assert facts == evolve(
        NOTHING,
        consumed=produced,
        pause_ms_max=facts.pause_ms_max,
        unavailable_partition_s=facts.unavailable_partition_s,
        commits=facts.commits,
        commit_ms_max=facts.commit_ms_max,
    )


def test_trial_when_closed_leaves_neither_process_nor_folder(mock_address: str) -> None:
    config = {"bootstrap.servers": mock_address}
    with Trial(client_config=config, topics=["x"], partitions_per_topic=4) as trial:
        trial.start_producer(rate_per_partition=5)
        group = trial.group("eager")
        group.start("m1")
        group.freeze("m1")
        group.prepare("m2")
        processes = [incarnation.process for incarnation in group.incarnations]
    assert [process.poll() for process in processes] == [-signal.SIGKILL] * 2
    assert not trial.folder.exists()


def test_window_when_still_open_has_no_end(trial: Trial) -> None:
    with trial.window() as opened, pytest.raises(TrialError, match="still open"):
        _ = opened.window
    assert opened.window.length_s >= 0


# --- members as processes: names, ends and error messages -----------------------------------------


def test_group_when_members_are_frozen_killed_and_replaced_keeps_their_names(
    trial: Trial,
) -> None:
    group = trial.group("eager")
    group.prepare("m1", "m2")
    group.start("m1", "m2")
    first = group.member("m1").process.pid
    group.freeze("m1")
    assert os.waitid(os.P_PID, first, os.WSTOPPED | os.WNOWAIT) is not None
    group.resume("m1")
    assert os.waitid(os.P_PID, first, os.WCONTINUED | os.WNOWAIT) is not None
    group.kill("m1")
    assert [*group.living] == ["m2"]
    group.start("m1")
    assert group.member("m1").process.pid != first
    assert group.living == ("m1", "m2")
    assert [incarnation.member for incarnation in group.incarnations] == ["m1", "m2", "m1"]


def test_group_when_a_member_fails_tells_its_last_words(trial: Trial) -> None:
    group = trial.group("eager", extra_config={"no.such.key": 1})
    group.start("m1")
    with pytest.raises(TrialError, match=r"m1 ended with status 1: .*no\.such\.key"):
        group.wait_stopped("m1")
    with pytest.raises(TrialError, match=r"m1 ended with status 1: .*no\.such\.key"):
        group.wait_settled()


def test_group_when_a_member_is_unknown_says_so(trial: Trial) -> None:
    with pytest.raises(TrialError, match="eager-0 has no member m9"):
        trial.group("eager").stop("m9")
