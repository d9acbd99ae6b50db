"""From Kafka's own clients to ours and back, under load, with real members on a real broker.

Each story is a rolling bounce. No record is lost, no partition has two owners, and the group uses
the protocol that the broker reports.
"""

import time
from functools import partial

import pytest

from tests.support.mixed_group import MixedGroup

pytestmark = pytest.mark.verify


@pytest.mark.parametrize("client", ["java_client", "librdkafka"])
def test_cooperative_group_moves_to_ours_in_one_bounce_and_back_in_one(
    mixed: MixedGroup, client: str
) -> None:
    """First the others lead and ours follow; without the others, the group switches to ours."""
    start = partial(getattr(mixed, client), strategy="cooperative-sticky")
    start("f1")
    start("f2")
    mixed.settle("f1", "f2", protocol="cooperative-sticky")
    mixed.ours("a", "coopgroup,cooperative-sticky")
    mixed.settle("f1", "f2", "a", protocol="cooperative-sticky")
    began_s = time.monotonic()
    mixed.stop("f1")
    mixed.settle("f2", "a", protocol="cooperative-sticky")
    mixed.check_kept(began_s, "a")
    mixed.ours("b", "coopgroup,cooperative-sticky")
    mixed.settle("f2", "a", "b", protocol="cooperative-sticky")
    began_s = time.monotonic()
    mixed.stop("f2")
    mixed.settle("a", "b", protocol="coopgroup")
    mixed.check_kept(began_s, "a", "b")
    start("f3")
    mixed.settle("a", "b", "f3", protocol="cooperative-sticky")
    began_s = time.monotonic()
    mixed.stop("a")
    mixed.settle("b", "f3", protocol="cooperative-sticky")
    mixed.check_kept(began_s, "b")
    mixed.stop("b")
    mixed.settle("f3", protocol="cooperative-sticky")
    mixed.finish()


def test_ours_leads_cooperative_members_of_other_clients(mixed: MixedGroup) -> None:
    """The first to join leads: all clients can read its assignments and obey them.

    kafka-python sends its owned partitions in version 1, without a generation and without user
    data.
    """
    mixed.ours("a", "cooperative-sticky,coopgroup")
    mixed.settle("a", protocol="cooperative-sticky")
    mixed.java_client("j", "cooperative-sticky")
    mixed.settle("a", "j", protocol="cooperative-sticky")
    mixed.librdkafka("k", "cooperative-sticky")
    mixed.settle("a", "j", "k", protocol="cooperative-sticky")
    mixed.kafka_python("p", "cooperative-sticky")
    mixed.settle("a", "j", "k", "p", protocol="cooperative-sticky")
    # one alone, and two for most of the members that needed partitions
    assert mixed.rounds_led("a") >= 6
    began_s = time.monotonic()
    mixed.stop("k")
    mixed.settle("a", "j", "p", protocol="cooperative-sticky")
    mixed.check_kept(began_s, "a")
    mixed.finish()


@pytest.mark.parametrize(
    ("client", "theirs"),
    [("java_client", "range"), ("librdkafka", "range,roundrobin"), ("kafka_python", "range")],
)
def test_eager_group_moves_to_ours_in_one_bounce_and_back_in_two(
    mixed: MixedGroup, client: str, theirs: str
) -> None:
    """Our protocol is first in the list on the way there, theirs on the way back."""
    start = partial(getattr(mixed, client), strategy=theirs)
    start("f1")
    # until kafka-python knows the topic, its rounds do not end
    mixed.settle("f1", protocol="range")
    start("f2")
    mixed.settle("f1", "f2", protocol="range")
    mixed.ours("a", f"coopgroup,{theirs}")
    mixed.settle("f1", "f2", "a", protocol="range")
    mixed.stop("f1")
    mixed.ours("b", f"coopgroup,{theirs}")
    mixed.settle("f2", "a", "b", protocol="range")
    began_s = time.monotonic()
    mixed.stop("f2")
    mixed.settle("a", "b", protocol="coopgroup")
    mixed.check_kept(began_s, "a", "b")
    # Way back, first bounce: the broker keeps our protocol until all members prefer theirs.
    mixed.stop("a")
    mixed.ours("c", f"{theirs},coopgroup")
    mixed.settle("b", "c", protocol="coopgroup")
    mixed.stop("b")
    mixed.ours("d", f"{theirs},coopgroup")
    mixed.settle("c", "d", protocol="range")
    # Second bounce: our members lead the eager rounds until they are gone.
    start("f3")
    mixed.settle("c", "d", "f3", protocol="range")
    mixed.stop("c")
    mixed.settle("d", "f3", protocol="range")
    mixed.stop("d")
    mixed.settle("f3", protocol="range")
    mixed.finish()


def test_eager_member_that_comes_too_late_is_refused_and_disturbs_nobody(
    mixed: MixedGroup,
) -> None:
    """Members that retain partitions must not be led by a member that reassigns them."""
    mixed.java_client("f1", "range")
    mixed.ours("a", "coopgroup,range")
    mixed.settle("f1", "a", protocol="range")
    mixed.stop("f1")
    mixed.settle("a", protocol="coopgroup")
    began_s = time.monotonic()
    mixed.java_client("late", "range")
    mixed.until(lambda: bool(mixed.ledger.failed), "the broker refuses it")
    assert mixed.ledger.failed.popitem()[1] == "InconsistentGroupProtocolException"
    mixed.settle("a", protocol="coopgroup")
    mixed.check_kept(began_s, "a")
    mixed.finish()


@pytest.mark.parametrize("leads", ["java", "ours"])
def test_sticky_group_keeps_things_where_they_were(mixed: MixedGroup, leads: str) -> None:
    """Any leader reads the previous owners from the user data of Kafka's assignor."""
    protocols = "coopgroup,sticky" if leads == "java" else "sticky,coopgroup"
    if leads == "java":
        mixed.java_client("f", "sticky")
        mixed.settle("f", protocol="sticky")
    mixed.ours("a", protocols)
    if leads == "ours":
        mixed.settle("a", protocol="sticky")
        mixed.java_client("f", "sticky")
    mixed.settle("f", "a", protocol="sticky")
    before = mixed.shares()
    mixed.ours("b", protocols)
    mixed.settle("f", "a", "b", protocol="sticky")
    assert all(set(mixed.shares()[name]) < set(before[name]) for name in ("f", "a"))
    assert (mixed.rounds_led("a") >= 3) == (leads == "ours")
    if leads == "java":
        began_s = time.monotonic()
        mixed.stop("f")
        mixed.settle("a", "b", protocol="coopgroup")
        mixed.check_kept(began_s, "a", "b")
    mixed.finish()


def test_group_with_the_default_list_of_java_is_a_cooperative_one_for_ours(
    mixed: MixedGroup,
) -> None:
    """With this list Java itself stays eager and uses range until a member without range joins."""
    mixed.java_client("f1", "range,cooperative-sticky")
    mixed.settle("f1", protocol="range")
    mixed.ours("a", "coopgroup,cooperative-sticky")
    mixed.settle("f1", "a", protocol="cooperative-sticky")
    began_s = time.monotonic()
    mixed.java_client("f2", "range,cooperative-sticky")
    mixed.settle("f1", "f2", "a", protocol="cooperative-sticky")
    assert len(mixed.ledger.given_up_between("a", began_s, time.monotonic())) == 1
    began_s = time.monotonic()
    mixed.stop("f1")
    mixed.stop("f2")
    mixed.settle("a", protocol="coopgroup")
    mixed.check_kept(began_s, "a")
    mixed.java_client("f3", "range,cooperative-sticky")
    mixed.settle("a", "f3", protocol="cooperative-sticky")
    mixed.stop("a")
    mixed.settle("f3", protocol="range")
    mixed.finish()
