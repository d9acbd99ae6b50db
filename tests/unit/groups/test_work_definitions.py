"""Definitions of resources: what `start` gets, what a change causes, and what a start awaits."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest

from coopgroup.core.member.effects import (
    BeginWarmups,
    GrantResources,
    LoseResources,
    RevokeResources,
)
from coopgroup.core.member.events import StartsDeclined
from coopgroup.core.member.parts import LastAssignment
from coopgroup.core.model import ResourceSet
from coopgroup.errors import StartFailed
from coopgroup.groups.catalogue import Catalogue, GroupResource
from coopgroup.groups.health import GroupWork
from coopgroup.telemetry import ResourcesStarted, ResourcesStopped, StopReason
from tests.support.by_hand import Hand
from tests.unit.groups.bench import (
    BOTH,
    HEAVY,
    LIGHT,
    LOSE_HEAVY,
    ONLY_HEAVY,
    RETRY_S,
    REVOKE_HEAVY,
    STOP_S,
    Bench,
)

BEHIND_S = 30.0


def defined(version: int | None = None, **definitions: object) -> Catalogue:
    """Return a catalogue of both resources; "light" and "heavy" may have definitions."""
    named = {"light": LIGHT, "heavy": HEAVY}
    given = {named[name]: one for name, one in definitions.items()}
    return Catalogue.of(BOTH, version=version, definitions=given)


def led_at(version: int | None) -> SimpleNamespace:
    """Return a member whose leader read this version."""
    return SimpleNamespace(
        claim_generation=3, last_assignment=LastAssignment(catalogue_version=version)
    )


def heard(bench: Bench) -> list[tuple[str, object, str]]:
    """Return each callback of the heavy resource: action, definition and reason."""
    return [
        (action, given.definition, given.reason)
        for (action, resource), given in zip(bench.calls, bench.given, strict=True)
        if resource == HEAVY
    ]


# --- a start awaits the catalogue -----------------------------------------------------------------


@pytest.mark.parametrize("has_it", [False, True])
def test_start_waits_for_the_catalogue_that_the_leader_read(bench: Bench, *, has_it: bool) -> None:
    """Otherwise a worker starts with an old definition, or without one."""
    old = defined(1, heavy="old") if has_it else Catalogue.of([LIGHT], version=1)
    bench.catalogue, bench.member = old, led_at(2)
    bench.grant(ONLY_HEAVY)
    bench.advance(1.1)
    assert bench.calls == []
    assert bench.work.holds(HEAVY)  # nobody else may have it
    assert bench.looks == 3  # immediately, and every half second
    bench.read(defined(2, heavy="new"))
    assert heard(bench) == [("start", "new", "")]
    bench.advance(60.0)
    assert (bench.looks, bench.warned, len(bench.calls)) == (3, [], 1)


def test_start_that_waits_long_is_warned_of_and_then_declined(hand: Hand) -> None:
    bench = Bench(hand, has_warm=False)
    bench.catalogue, bench.member = defined(1), led_at(2)
    bench.grant(ONLY_HEAVY)
    bench.advance(4.9)
    assert bench.warned == []
    bench.advance(BEHIND_S - 5.0)
    assert bench.warned == ["catalogue_behind"]
    assert bench.posted == []
    bench.advance(0.6)
    assert bench.posted == [StartsDeclined(resources=ONLY_HEAVY)]
    assert bench.calls == []
    assert [str(one.error) for one in bench.reported] == ["the catalogue here does not have it"]
    assert not bench.work.holds(HEAVY)


def test_start_of_an_unknown_resource_waits_without_versions_too(bench: Bench) -> None:
    bench.catalogue = Catalogue.of([LIGHT])
    bench.grant(BOTH)
    assert bench.calls == [("start", LIGHT)]
    bench.read(defined(heavy=1))
    assert heard(bench) == [("start", 1, "")]


@pytest.mark.parametrize("how", ["revoked", "lost", "closing"])
def test_wait_for_the_catalogue_ends_with_the_grant(bench: Bench, how: str) -> None:
    bench.catalogue, bench.member = defined(1), led_at(2)
    bench.grant(ONLY_HEAVY)
    if how == "closing":
        assert bench.work.close(STOP_S)
    else:
        bench.put(REVOKE_HEAVY if how == "revoked" else LOSE_HEAVY)
    bench.advance(BEHIND_S + 1.0)
    assert bench.calls == []
    assert StartsDeclined(resources=ONLY_HEAVY) not in bench.posted
    assert bench.work.works() == ()
    assert bench.given_up() == ([HEAVY] if how == "revoked" else [])


# --- what ends says why ---------------------------------------------------------------------------


def test_stop_says_why(bench: Bench) -> None:
    bench.catalogue = defined(1, heavy="one")
    bench.grant(BOTH)
    bench.put(REVOKE_HEAVY)
    bench.grant(ONLY_HEAVY)
    bench.read(Catalogue.of([LIGHT], version=2))
    bench.put(REVOKE_HEAVY)
    bench.read(defined(3, heavy="two"))
    bench.grant(ONLY_HEAVY)
    bench.put(LoseResources(resources=BOTH, cause="lease expired"))
    bench.grant(ONLY_HEAVY)
    assert bench.work.close(STOP_S)
    assert heard(bench) == [
        ("start", "one", ""),
        ("stop", "one", "moved"),
        ("start", "one", ""),
        ("stop", "one", "deleted"),
        ("start", "two", ""),
        ("lost", "two", "lost"),
        ("start", "two", ""),
        ("stop", "two", "closing"),
    ]


@pytest.mark.parametrize("is_read", [False, True])
def test_stop_waits_briefly_for_the_catalogue_that_says_why(bench: Bench, *, is_read: bool) -> None:
    """A deleted resource must be cleaned up, but a stop must not be late."""
    bench.catalogue = defined(1)
    bench.grant(ONLY_HEAVY)
    bench.member = led_at(2)
    bench.put(REVOKE_HEAVY)
    bench.advance(1.0)
    assert heard(bench) == [("start", None, "")]
    if is_read:
        bench.read(Catalogue.of([LIGHT], version=2))
    else:
        bench.advance(1.6)
    assert heard(bench)[1:] == [("stop", None, "deleted" if is_read else "moved")]
    assert bench.given_up() == [HEAVY]


# --- a changed definition -------------------------------------------------------------------------


def change_in_place(definition: dict[str, object]) -> None:
    definition["tasks"] = 2


@pytest.mark.parametrize(
    ("before", "after", "is_changed"),
    [
        ({"tasks": 1}, {"tasks": 2}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (b"1", b"2", True),
        (b"1", "1", True),
        (None, None, False),
    ],
)
def test_changed_definition_stops_and_starts(
    bench: Bench, before: object, after: object, *, is_changed: bool
) -> None:
    bench.catalogue = defined(1, heavy=before)
    bench.grant(ONLY_HEAVY)
    bench.during["stop", HEAVY] = lambda: holds.append(
        (bench.work.holds(HEAVY), bench.work.token(HEAVY))
    )
    holds: list[tuple[bool, int | None]] = []
    bench.read(defined(2, heavy=after))
    changed = [("stop", before, "changed"), ("start", after, "")]
    assert heard(bench) == [("start", before, ""), *(changed if is_changed else [])]
    assert holds == ([(False, 3)] if is_changed else [])
    assert bench.stops() == ([(HEAVY, StopReason.CHANGED)] if is_changed else [])
    assert bench.work.holds(HEAVY)
    assert bench.given_up() == []  # it never leaves this member
    bench.during.clear()


def test_definition_that_is_changed_in_place_counts_as_changed(bench: Bench) -> None:
    """A callable may return the same objects each time, and callbacks may keep theirs."""
    definition: dict[str, object] = {"tasks": 1}
    bench.catalogue = defined(heavy=definition)
    bench.during["start", HEAVY] = lambda: change_in_place(bench.given[-1].definition)
    bench.grant(ONLY_HEAVY)
    bench.read(defined(heavy=definition))
    assert bench.actions() == ["start"]
    definition["tasks"] = 3
    bench.read(defined(heavy=definition))
    assert [given.definition for given in bench.given[1:]] == [{"tasks": 1}, {"tasks": 3}]


def test_resource_that_was_deleted_and_created_is_changed(bench: Bench) -> None:
    """Its leader saw neither, so that the group has no reason to move it."""
    bench.grant(ONLY_HEAVY)
    bench.read(Catalogue.of([LIGHT]))
    assert bench.actions() == ["start"]  # the leader decides about deleted ones
    bench.read(defined())
    assert bench.actions() == ["start", "stop", "start"]


@pytest.mark.parametrize("action", ["start", "stop"])
def test_definition_that_changes_during_a_callback_is_not_missed(bench: Bench, action: str) -> None:
    bench.catalogue = defined(1, heavy=1)

    def change() -> None:
        bench.catalogue = defined(3, heavy=3)
        bench.work.take_catalogue()

    bench.during[action, HEAVY] = change
    bench.grant(ONLY_HEAVY)
    if action == "stop":
        bench.read(defined(2, heavy=2))
    assert heard(bench) == [("start", 1, ""), ("stop", 1, "changed"), ("start", 3, "")]


@pytest.fixture
def changing(hand: Hand) -> Bench:
    """Return a bench whose application changes resources while they run."""
    return Bench(hand, has_on_change=True)


def test_change_with_a_callback_of_its_own_goes_on(changing: Bench) -> None:
    changing.catalogue = defined(heavy=1)
    changing.grant(ONLY_HEAVY)
    changing.failures["change", HEAVY] = [ValueError("no")]
    changing.during["change", HEAVY] = lambda: holds.append(changing.work.holds(HEAVY))
    holds: list[bool] = []
    changing.read(defined(heavy=2))
    changing.advance(RETRY_S)
    assert heard(changing) == [("start", 1, ""), ("change", 2, ""), ("change", 2, "")]
    assert holds == [True]
    assert [one.action for one in changing.reported] == ["change"]
    changing.put(REVOKE_HEAVY)
    assert heard(changing)[-1] == ("stop", 2, "moved")
    assert changing.stops() == [(HEAVY, "revoked")]


@pytest.mark.parametrize("has_callback", [False, True])
@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_change_that_has_not_begun_gives_way(
    bench: Bench, changing: Bench, how: str, *, has_callback: bool
) -> None:
    """The work ends with the definition with which it began."""
    of = changing if has_callback else bench
    of.catalogue = defined(heavy=1)
    of.grant(ONLY_HEAVY)
    of.catalogue = defined(heavy=2)
    of.work.take_catalogue()
    of.put(REVOKE_HEAVY if how == "revoked" else LOSE_HEAVY)
    end = ("stop", 1, "moved") if how == "revoked" else ("lost", 1, "lost")
    assert heard(of) == [("start", 1, ""), end]
    assert of.stops() == [(HEAVY, how)]


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_stop_for_a_change_ends_the_work_if_the_grant_ends_meanwhile(
    bench: Bench, how: str
) -> None:
    bench.catalogue = defined(heavy=1)
    bench.grant(ONLY_HEAVY)
    notice = RevokeResources(resources=ONLY_HEAVY) if how == "revoked" else LOSE_HEAVY
    bench.during["stop", HEAVY] = partial(bench.put, notice)
    bench.read(defined(heavy=2))
    assert bench.actions() == ["start", "stop"]
    assert bench.given_up() == ([HEAVY] if how == "revoked" else [])
    assert bench.work.works() == ()


def test_stop_for_a_change_after_the_lease_is_lost(bench: Bench) -> None:
    """A frozen process must not flush beside the next owner."""
    bench.catalogue = defined(heavy=1)
    bench.grant(ONLY_HEAVY)
    bench.catalogue = defined(heavy=2)
    bench.work.take_catalogue()
    bench.lease_until_s = bench.hand.now_s
    bench.hand.run_one()
    bench.put(LOSE_HEAVY)
    assert "stop" not in bench.actions()


def test_changes_are_told_as_a_stop_and_a_start(bench: Bench) -> None:
    bench.catalogue = defined(heavy=1)
    bench.grant(ONLY_HEAVY)
    bench.during["stop", HEAVY] = partial(bench.hand.advance, 2.0)
    bench.read(defined(heavy=2))
    told = [one for one in bench.written if isinstance(one, ResourcesStarted | ResourcesStopped)]
    assert told == [
        ResourcesStarted(resources=ONLY_HEAVY),
        ResourcesStopped(resources=ONLY_HEAVY, reason=StopReason.CHANGED, duration_ms=2_000),
        ResourcesStarted(resources=ONLY_HEAVY),
    ]


def test_failed_start_is_tried_again_at_once_with_another_definition(bench: Bench) -> None:
    bench.catalogue = defined(heavy=1, light=1)
    bench.failures["start", HEAVY] = [ValueError("no")]
    bench.failures["start", LIGHT] = [StartFailed("no such topic")]
    bench.grant(BOTH)
    assert len(bench.calls) == 2
    bench.read(defined(heavy=2, light=2))
    assert [one.definition for one in bench.given[2:]] == [2, 2]
    assert set(bench.work.held()) == set(BOTH)


def test_warm_up_gets_the_definition(bench: Bench) -> None:
    bench.catalogue = defined(heavy={"state": "big"})
    bench.put(BeginWarmups(resources=ONLY_HEAVY))
    assert heard(bench) == [("warm", {"state": "big"}, "")]


def test_resource_of_a_callback_equals_the_plain_one() -> None:
    given = GroupResource("heavy", -1, {"a": 1}, "moved")
    assert given == HEAVY
    assert {HEAVY: 1}[given] == 1
    assert ResourceSet.from_pairs([given]) == ONLY_HEAVY


def test_stop_after_a_change_that_failed_gets_the_definition_before(hand: Hand) -> None:
    bench = Bench(hand, has_on_change=True)
    bench.catalogue = defined(heavy=1)
    bench.grant(ONLY_HEAVY)
    bench.failures["change", HEAVY] = [ValueError("no")]
    bench.read(defined(heavy=2))
    bench.put(REVOKE_HEAVY)
    assert heard(bench)[1:] == [("change", 2, ""), ("stop", 1, "moved")]


def test_start_that_waits_for_a_thread_awaits_the_catalogue_of_a_later_grant(bench: Bench) -> None:
    bench.catalogue, bench.member = defined(1, heavy=1), led_at(1)
    bench.work.put(GrantResources(resources=ONLY_HEAVY))  # no thread is free
    bench.work.put(LOSE_HEAVY)
    bench.member = led_at(2)
    bench.grant(ONLY_HEAVY)
    assert bench.calls == []
    bench.read(defined(2, heavy=2))
    assert heard(bench) == [("start", 2, "")]


def test_change_after_the_lease_loses_the_resource(hand: Hand) -> None:
    bench = Bench(hand, has_on_change=True)
    bench.catalogue = defined(1, heavy=1)
    bench.grant(ONLY_HEAVY)
    bench.lease_until_s = hand.now_s
    bench.read(defined(2, heavy=2))
    assert bench.actions()[:2] == ["start", "lost"]
    assert "change" not in bench.actions()


@pytest.mark.parametrize("has_on_change", [False, True])
def test_change_that_hangs_is_told_and_shown(hand: Hand, *, has_on_change: bool) -> None:
    bench = Bench(hand, has_on_change=has_on_change)
    bench.catalogue = defined(1, heavy=1)
    bench.grant(ONLY_HEAVY)

    def hang() -> None:
        for seconds in (STOP_S / 2, STOP_S / 2, STOP_S):
            hand.advance(seconds)
            assert bench.reminder_s <= hand.now_s or seconds == STOP_S
            bench.work.wake()
        assert bench.warned == ["stop_takes_long", "stop_never_finished"]
        (stuck,) = GroupWork(bench.work).read().stuck
        assert (stuck.topic, stuck.since_s) == ("heavy", 2 * STOP_S)

    bench.during["change" if has_on_change else "stop", HEAVY] = hang
    bench.read(defined(2, heavy=2))
    bench.check()
    assert GroupWork(bench.work).read().stuck == ()
    assert bench.work.token(HEAVY) == 3


def test_change_that_hangs_is_told_though_the_resource_was_lost_and_came_back(hand: Hand) -> None:
    bench = Bench(hand, has_on_change=True)
    bench.catalogue = defined(1, heavy=1)
    bench.grant(ONLY_HEAVY)

    def hang() -> None:
        bench.put(LOSE_HEAVY)
        bench.grant(ONLY_HEAVY)
        for _ in range(3):
            bench.advance(STOP_S / 2)
        assert bench.warned == ["stop_takes_long", "stop_never_finished"]
        assert bench.given_up() == []

    bench.during["change", HEAVY] = hang
    bench.read(defined(2, heavy=2))
    bench.check()
    assert bench.work.holds(HEAVY)
