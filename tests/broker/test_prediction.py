"""The simulator predicts the course of a story that a real group plays.

The stories are those of the policy tests. The simulator repeats the actions on the processes at
their recorded times, with the same policy, assignor, timeouts and identities. It gets no other
input, and its seed is not chosen.
"""

from collections import Counter

import pytest

from coopgroup.model import ResourceSet
from coopgroup.telemetry import RoundDecided
from coopgroup.testing import KafkaCluster
from tests.support.policy_chapters import DEATHS, DEPLOYMENTS
from tests.support.policy_stories import Played, Prediction, told

pytestmark = [pytest.mark.verify, pytest.mark.timeout(300)]  # the first test waits for all stories

DEATH_NAMES = tuple(story.name for story in DEATHS.stories)
DEPLOYMENT_NAMES = tuple(story.name for story in DEPLOYMENTS.stories)
ALL_NAMES = (*DEATH_NAMES, *DEPLOYMENT_NAMES)
TIED = ("leader-lost", "deferred-scale", "incremental-scale")
"""Stories in which several members give and several equal ones take at the same time: who takes
from whom is then decided by the names of members, which a broker makes at random."""

ONE_BY_ONE = (
    "deferred-return",
    "incremental-return",
    "kept-return",
    "deferred-death",
    "incremental-death",
    "deferred-rolling",
    "incremental-rolling",
)
"""Stories in which rounds do not depend on who is how fast: nothing is revoked, and whatever
happens waits until the group has heard of what happened before."""


_predictions: dict[str, Prediction] = {}


def _played(cluster: KafkaCluster, name: str) -> tuple[Played, Prediction]:
    chapter = DEATHS if name in DEATH_NAMES else DEPLOYMENTS
    played = told(cluster, chapter)[name]
    if name not in _predictions:
        _predictions[name] = played.predict()
    return played, _predictions[name]


@pytest.mark.parametrize("name", ALL_NAMES)
def test_simulator_predicts_who_gets_how_much(kafka_cluster: KafkaCluster, name: str) -> None:
    """Partitions per member, number of moves, and partitions that move more than once."""
    played, predicted = _played(kafka_cluster, name)
    assert _gained(played.moves()) == _gained(predicted.moves())
    assert _times_moved(played.moved()) == _times_moved(predicted.moved())


@pytest.mark.parametrize("name", [name for name in ALL_NAMES if name not in TIED])
def test_simulator_predicts_from_whom(kafka_cluster: KafkaCluster, name: str) -> None:
    """The number of moves between each two members."""
    played, predicted = _played(kafka_cluster, name)
    assert played.moves() == predicted.moves()


@pytest.mark.parametrize("name", ["deferred-heavy", "incremental-heavy"])
def test_simulator_predicts_which_partitions_move(kafka_cluster: KafkaCluster, name: str) -> None:
    """Exact partitions, in stories that leave nothing to chance."""
    played, predicted = _played(kafka_cluster, name)
    assert sorted(played.moved()) == sorted(predicted.moved())


@pytest.mark.parametrize("name", ONE_BY_ONE)
def test_simulator_predicts_the_rounds(kafka_cluster: KafkaCluster, name: str) -> None:
    """Their number, and how many partitions each one grants, revokes and withholds."""
    played, predicted = _played(kafka_cluster, name)
    real = [one.record for one in played.rounds() if isinstance(one.record, RoundDecided)]
    assert [_counts(one) for one in real] == [_counts(one) for one in predicted.rounds()]


def _gained(moves: Counter[tuple[str, str]]) -> Counter[str]:
    gained: Counter[str] = Counter()
    for (_, after), count in moves.items():
        gained[after] += count
    return gained


def _times_moved(moved: list[int]) -> list[int]:
    return sorted(Counter(moved).values())


def _counts(led: RoundDecided) -> tuple[int, ...]:
    parts: tuple[ResourceSet, ...] = (led.granted, led.revoked, led.lost, led.created)
    return (len(led.members), *(len(one) for one in parts))
