"""A `start` that raises `Decline` or `StartFailed`, and what the member tells its group."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from coopgroup.core.member.effects import RevokeResources
from coopgroup.core.member.events import StartsDeclined
from coopgroup.core.member.parts import LastAssignment
from coopgroup.core.model import ResourceSet
from coopgroup.errors import ConfigurationError, Decline, StartFailed
from coopgroup.groups.catalogue import Catalogue
from coopgroup.telemetry import WorkFailed
from tests.support.by_hand import Hand
from tests.unit.groups.bench import (
    BOTH,
    HEAVY,
    LIGHT,
    LOSE_HEAVY,
    ONLY_HEAVY,
    ONLY_LIGHT,
    REVOKE_HEAVY,
    Bench,
)


def declined(bench: Bench) -> list[ResourceSet]:
    """Return what the member told its leaders, each time."""
    return [one.resources for one in bench.posted if isinstance(one, StartsDeclined)]


@pytest.fixture
def bench(hand: Hand) -> Iterator[Bench]:
    made = Bench(hand, has_warm=False)
    yield made
    made.check()


@pytest.fixture
def declining(bench: Bench) -> Bench:
    """Return a bench that has declined the heavy resource for a minute."""
    bench.failures["start", HEAVY] = [Decline("no GPU is free")]
    bench.grant(BOTH)
    return bench


def test_declined_resource_is_told_and_not_tried_again(declining: Bench) -> None:
    declining.advance(59.0)
    assert declined(declining) == [ONLY_HEAVY]
    assert declining.actions() == ["start"]
    assert declining.work.held() == ONLY_LIGHT
    assert declining.work.token(HEAVY) == 3  # no other member can have it yet
    assert declining.work.failed() == {}
    assert [(one.action, str(one.error)) for one in declining.reported] == [
        ("start", "no GPU is free")
    ]
    records = [one for one in declining.written if isinstance(one, WorkFailed)]
    assert [(one.error, one.permanent) for one in records] == [("Decline: no GPU is free", False)]


def test_declined_resource_is_given_up_without_a_stop(declining: Bench) -> None:
    declining.put(REVOKE_HEAVY)
    assert declining.given_up() == [HEAVY]
    assert declining.actions() == ["start"]
    assert declining.stops() == []


def test_memory_of_a_decline_ends(declining: Bench) -> None:
    declining.put(REVOKE_HEAVY)
    declining.advance(59.9)
    assert declined(declining) == [ONLY_HEAVY]
    declining.advance(0.2)
    assert declined(declining) == [ONLY_HEAVY, ResourceSet()]
    declining.grant(ONLY_HEAVY)
    assert declining.work.held() == BOTH


def test_declined_resource_that_no_other_member_got_is_tried_again(declining: Bench) -> None:
    declining.failures["start", HEAVY] = [Decline("still none", for_s=5.0)]
    declining.advance(60.0)
    assert declined(declining) == [ONLY_HEAVY, ResourceSet(), ONLY_HEAVY]
    declining.advance(5.0)
    assert declining.actions() == ["start"] * 3
    assert declining.work.held() == BOTH


def test_resource_that_comes_back_before_the_memory_ends_waits(declining: Bench) -> None:
    """Otherwise a group whose members all decline would rebalance without end."""
    declining.put(REVOKE_HEAVY)
    declining.grant(ONLY_HEAVY)
    declining.put(LOSE_HEAVY)
    declining.grant(ONLY_HEAVY)
    assert declining.actions() == ["start"]
    assert declined(declining) == [ONLY_HEAVY]
    declining.advance(60.0)
    assert declining.actions() == ["start", "start"]


@pytest.mark.parametrize("how", ["revoked", "lost", "closing"])
def test_decline_of_a_resource_that_ends_meanwhile_tells_nothing(bench: Bench, how: str) -> None:
    bench.failures["start", HEAVY] = [Decline("no GPU is free")]
    if how == "closing":
        bench.during["start", HEAVY] = partial(close, bench)
    else:
        bench.during["start", HEAVY] = partial(
            bench.put, REVOKE_HEAVY if how == "revoked" else LOSE_HEAVY
        )
    bench.grant(ONLY_HEAVY)
    assert declined(bench) == []
    assert bench.work.works() == ()


@pytest.mark.parametrize("refusal", [Decline("no GPU is free"), StartFailed("no such table")])
def test_refusal_of_a_resource_that_ends_meanwhile_is_reported(
    bench: Bench, refusal: Decline | StartFailed
) -> None:
    bench.failures["start", HEAVY] = [refusal]
    bench.during["start", HEAVY] = partial(bench.put, REVOKE_HEAVY)
    bench.grant(ONLY_HEAVY)
    assert [one.error for one in bench.reported] == [refusal]


def close(bench: Bench) -> None:
    assert not bench.work.close(0.0)


def test_two_declines_are_told_together(bench: Bench) -> None:
    bench.failures["start", LIGHT] = [Decline("not here", for_s=10.0)]
    bench.failures["start", HEAVY] = [Decline("not here", for_s=20.0)]
    bench.grant(BOTH)
    bench.advance(30.0)
    assert sorted(map(len, declined(bench)[:2])) == [1, 2]
    assert declined(bench)[2:] == [ONLY_HEAVY, ResourceSet()]


def test_member_that_takes_part_in_warm_ups_tells_what_it_declines(hand: Hand) -> None:
    """Regression: it kept the resource out of service, though another member could start it."""
    bench = Bench(hand)
    bench.failures["start", HEAVY] = [Decline("not now", for_s=5.0)]
    bench.grant(BOTH)
    assert declined(bench) == [ONLY_HEAVY]


def test_decline_is_void_if_the_definition_has_changed_meanwhile(bench: Bench) -> None:
    def change() -> None:
        bench.catalogue = Catalogue.of(BOTH, definitions={HEAVY: "new"})
        bench.work.take_catalogue()

    bench.during["start", HEAVY] = change
    bench.failures["start", HEAVY] = [Decline("not with this definition")]
    bench.grant(BOTH)
    assert declined(bench) == []
    assert bench.work.held() == BOTH


def test_decline_ends_with_the_definition_that_caused_it(declining: Bench) -> None:
    declining.read(Catalogue.of(BOTH, definitions={HEAVY: "right"}))
    assert declined(declining) == [ONLY_HEAVY, ResourceSet()]
    assert declining.work.held() == BOTH


def test_decline_ends_with_the_resource(declining: Bench) -> None:
    declining.put(REVOKE_HEAVY)
    declining.read(Catalogue.of(BOTH, version=2))
    assert declined(declining) == [ONLY_HEAVY]
    declining.read(Catalogue.of(ONLY_LIGHT, version=3))
    assert declined(declining) == [ONLY_HEAVY, ResourceSet()]


def test_decline_for_want_of_a_catalogue_ends_when_it_lists_the_resource(bench: Bench) -> None:
    bench.catalogue = Catalogue.of(ONLY_LIGHT)
    bench.grant(BOTH)
    bench.advance(31.0)
    bench.read(Catalogue.of(ONLY_LIGHT))
    assert declined(bench) == [ONLY_HEAVY]
    bench.read(Catalogue.of(BOTH))
    assert declined(bench) == [ONLY_HEAVY, ResourceSet()]
    assert bench.work.held() == BOTH


def test_decline_for_want_of_a_catalogue_does_not_wait_for_a_definition(bench: Bench) -> None:
    """A definition that is new here, and older than the leader's, must not keep the resource."""
    bench.member.last_assignment = LastAssignment(catalogue_version=3)
    bench.catalogue = Catalogue.of(BOTH, version=1)
    bench.grant(ONLY_HEAVY)
    bench.read(Catalogue.of(BOTH, version=2, definitions={HEAVY: "new"}))
    bench.advance(31.0)
    assert declined(bench) == [ONLY_HEAVY]
    assert bench.actions() == []


def test_restart_withdraws_a_decline(declining: Bench) -> None:
    assert declining.work.restart(HEAVY)
    declining.hand.run()
    assert declined(declining) == [ONLY_HEAVY, ResourceSet()]
    assert declining.work.held() == BOTH
    assert not declining.work.restart(HEAVY)


# --- permanent failures ---------------------------------------------------------------------------


@pytest.fixture
def failed(bench: Bench) -> Bench:
    """Return a bench on which the heavy resource has failed permanently."""
    bench.failures["start", HEAVY] = [StartFailed("no such table")]
    bench.grant(BOTH)
    return bench


def test_failed_resource_stays_and_is_shown(failed: Bench) -> None:
    failed.advance(3_600.0)
    assert failed.actions() == ["start"]
    assert failed.work.failed() == {HEAVY: "no such table"}
    assert failed.work.held() == ONLY_LIGHT
    assert declined(failed) == []
    assert [str(one.error) for one in failed.reported] == ["no such table"]
    records = [one for one in failed.written if isinstance(one, WorkFailed)]
    assert [(one.error, one.permanent) for one in records] == [("StartFailed: no such table", True)]


def test_failure_that_cannot_be_told_is_shown(bench: Bench) -> None:
    class MuteError(StartFailed):
        def __str__(self) -> str:
            raise ValueError("no words")

    bench.failures["start", HEAVY] = [MuteError("")]
    bench.grant(BOTH)
    assert bench.work.failed() == {HEAVY: "…"}


def test_failed_resource_is_started_by_a_restart(failed: Bench) -> None:
    assert not failed.work.restart(LIGHT)
    assert not failed.work.restart(("unknown", 0))
    assert failed.work.restart(HEAVY)
    failed.hand.run()
    assert failed.work.failed() == {}
    assert failed.work.held() == BOTH
    assert not failed.work.restart(HEAVY)
    failed.hand.run()
    assert failed.actions() == ["start", "start"]


def test_failed_resource_starts_anew_where_it_goes(failed: Bench) -> None:
    failed.put(RevokeResources(resources=ONLY_HEAVY))
    assert failed.given_up() == [HEAVY]
    failed.grant(ONLY_HEAVY)
    assert failed.work.held() == BOTH


@pytest.mark.parametrize("for_s", [0, -1.0, float("inf"), float("nan"), "5", True, None])
def test_decline_for_no_time_is_refused(for_s: float) -> None:
    with pytest.raises(ConfigurationError, match=r"for_s: got .* expected seconds above 0"):
        Decline("why", for_s=for_s)


@pytest.mark.parametrize("refusal", [StartFailed("no such table"), Decline("no GPU is free")])
def test_refusal_after_a_failure_lets_other_work_be_woken(
    bench: Bench, refusal: StartFailed | Decline
) -> None:
    bench.failures["start", HEAVY] = [OSError("down"), refusal]
    bench.grant(ONLY_HEAVY)
    bench.advance(5.0)
    bench.failures["start", LIGHT] = [OSError("down")]
    bench.grant(ONLY_LIGHT)
    bench.advance(50.0)
    assert bench.actions() == ["start", "start"]
    assert bench.actions(LIGHT) == ["start", "start"]


def test_failed_start_that_waits_for_a_catalogue_lets_other_work_be_woken(bench: Bench) -> None:
    bench.failures["start", HEAVY] = [OSError("down")]
    bench.grant(ONLY_HEAVY)
    bench.catalogue = Catalogue.of(ONLY_LIGHT)
    bench.hand.advance(1.5)
    bench.work.wake()
    bench.advance(29.0)
    assert bench.looks > 50
    bench.advance(5.0)
    assert declined(bench) == [ONLY_HEAVY]
    assert isinstance(bench.reported[-1].error, Decline)
