"""Processes of a trial, on the broker inside the confluent-kafka wheel."""

from __future__ import annotations

import signal

import pytest
from attrs import evolve

from coopgroup.testing.trial import Trial, TrialError, measure
from coopgroup.testing.trial.brokers import Stage
from tests.support.facts import NOTHING


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
    assert [log.member for log in group.watch.logs] == ["m1"]


def test_trial_when_closed_leaves_neither_process_nor_folder(stage: Stage) -> None:
    with Trial(client_config=stage.client_config, topics=["x"], partitions_per_topic=4) as trial:
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
