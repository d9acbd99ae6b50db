"""A running group is upgraded: members of an earlier state of this package beside present ones.

`earlier_states.tar.xz` has the packages of two earlier states, so that this test needs no history
and no network. The folder of a state tells its newest user data:

- `user_data_2` (commit 7c50c4b) refuses bytes behind the fields of a version that it knows;
- `user_data_4` (commit 740631f) is the last state before warm-ups.

Each is `git archive COMMIT src/coopgroup`, without the packages that a consumer does not import.
Files of one name follow each other, which makes the archive small. Add the
package of each release.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from attrs import define, field

from coopgroup import DeferredPolicy
from coopgroup.testing import KafkaCluster
from tests.support.java_members import write_down
from tests.support.mixed_group import MixedGroup
from tests.support.waiting import WAIT_S_MAX

pytestmark = pytest.mark.verify

HERE: Final = Path(__file__).parent
PROGRAM: Final = HERE / "older_member.py"
ARCHIVE: Final = HERE / "earlier_states.tar.xz"
POLICY: Final = DeferredPolicy(scheduled_rebalance_timeout_ms=1_000)


@define(eq=False)
class OlderMembers:
    """Processes of one earlier state, which write into the ledger of their group."""

    group: MixedGroup
    source: Path
    _processes: dict[str, subprocess.Popen[str]] = field(factory=dict)

    def start(self, name: str) -> None:
        settings = {
            **self.group.cluster.client_config(),
            "group.id": self.group.group_id,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 200,
            "max.poll.interval.ms": 30_000,
            "auto.commit.interval.ms": 300,
        }
        given = [f"{key}={value}" for key, value in settings.items()]
        self._processes[name] = process = subprocess.Popen(
            [sys.executable, "-P", PROGRAM, self.source, name, self.group.topic, *given],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._listen, args=(name, process), daemon=True).start()

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        assert process.stdin is not None
        process.stdin.close()
        try:
            assert process.wait(WAIT_S_MAX) == 0
        finally:
            process.kill()
            process.wait()

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def _listen(self, name: str, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            _, *words = line.split()
            write_down(self.group.ledger, name, words)
        process.stdout.close()


@pytest.fixture
def mixed(kafka_cluster: KafkaCluster, tmp_path: Path) -> Iterator[MixedGroup]:
    """Return a group without Java."""
    with MixedGroup(kafka_cluster, None, tmp_path) as group:
        yield group


@pytest.fixture(params=["user_data_2", "user_data_4"])
def older(
    mixed: MixedGroup, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[OlderMembers]:
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    members = OlderMembers(mixed, tmp_path / request.param)
    yield members
    members.end()


def test_group_is_upgraded_one_member_after_the_other_and_back(
    mixed: MixedGroup, older: OlderMembers
) -> None:
    """Each state leads the other once. Those that stay keep their partitions."""

    def ours(name: str) -> None:
        mixed.ours(name, "coopgroup", policy=POLICY)

    older.start("o1")
    older.start("o2")
    mixed.settle("o1", "o2", protocol="coopgroup")
    ours("a")
    mixed.settle("o1", "o2", "a", protocol="coopgroup")
    assert mixed.rounds_led("a") == 0
    began_s = time.monotonic()
    older.stop("o1")
    mixed.settle("o2", "a", protocol="coopgroup")
    mixed.check_kept(began_s, "o2", "a")
    ours("b")
    mixed.settle("o2", "a", "b", protocol="coopgroup")
    began_s = time.monotonic()
    older.stop("o2")
    mixed.settle("a", "b", protocol="coopgroup")
    mixed.check_kept(began_s, "a", "b")
    led = mixed.rounds_led("a") + mixed.rounds_led("b")
    older.start("o3")
    mixed.settle("a", "b", "o3", protocol="coopgroup")
    assert mixed.rounds_led("a") + mixed.rounds_led("b") > led
    began_s = time.monotonic()
    mixed.stop("a")
    mixed.settle("b", "o3", protocol="coopgroup")
    mixed.check_kept(began_s, "b", "o3")
    mixed.stop("b")
    mixed.settle("o3", protocol="coopgroup")
    mixed.finish()
    assert mixed.ledger.lost == []
