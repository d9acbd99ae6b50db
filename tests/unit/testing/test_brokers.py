"""Brokers of a started cluster; `sleep` replaces Java."""

import os
from pathlib import Path

import pytest

from coopgroup.errors import ClusterStartError
from coopgroup.testing.brokers import (
    Broker,
    Started,
    add_brokers,
    launch,
    start_error,
)
from coopgroup.testing.maven import KafkaRuntime
from coopgroup.testing.processes import Reaper


def started_cluster(tmp_path: Path, owner_pid: int) -> Started:
    """A cluster of two brokers; `sleep` replaces Java."""
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\nexec sleep 60\n")
    java.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "bootstrap.checkpoint").write_text("checkpoint")
    folder = tmp_path / "cluster"
    folder.mkdir()
    started = Started(
        runtime=KafkaRuntime(java=str(java), folder=cache),
        folder=folder,
        reaper=Reaper(folder),
        owner_pid=owner_pid,
    )
    add_brokers(started, 2, None, {})
    return started


def running(started: Started) -> list[bool]:
    return [broker.is_running for broker in started.brokers.values()]


def test_remove_does_nothing_in_a_forked_child(tmp_path: Path) -> None:
    """A child that runs its parent's exit functions must not stop its parent's brokers."""
    started = started_cluster(tmp_path, os.getppid())
    launch(started, started.brokers[1], ())
    started.remove()
    assert running(started) == [True, False]
    assert started.folder.exists()
    started.owner_pid = os.getpid()
    started.remove()


def test_start_error_quotes_the_last_error_of_the_log(tmp_path: Path) -> None:
    started = started_cluster(tmp_path, os.getpid())
    broker = started.brokers[1]
    broker.log_path.write_text("INFO a\njava.lang.Exception: first\nERROR the reason\n at b\n")
    error = start_error(broker, "ended with status 1")
    started.remove()
    assert str(error) == "broker 1 ended with status 1: ERROR the reason"
    assert error.__notes__ == ["INFO a\njava.lang.Exception: first\nERROR the reason\n at b"]


def test_launch_is_refused_when_a_port_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = started_cluster(tmp_path, os.getpid())
    broker: Broker = started.brokers[1]
    taken = broker.address.internal_port
    monkeypatch.setattr("coopgroup.testing.brokers.is_listening", lambda port, _: port == taken)
    with pytest.raises(ClusterStartError, match=f"^broker 1: port {taken} is taken$"):
        launch(started, broker, ())
    started.remove()
