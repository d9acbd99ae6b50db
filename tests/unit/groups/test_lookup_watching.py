"""Requests for a round after a change of the catalogue: the member that sends one, and its time."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import define, field

from coopgroup.core.member import Member, MemberConfig, new_member
from coopgroup.core.member.events import CatalogueSeen, RejoinRequested
from coopgroup.core.member.parts import LastJoin
from coopgroup.core.model.replacing import replaced
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.lookup import CatalogueLookup, CatalogueWatcher
from tests.support.by_hand import Hand

REFRESH_S = 5.0
FIRST, SECOND = Catalogue.of([("a", 0)], version=1), Catalogue.of([("a", 0), ("b", 0)], version=2)


@define(eq=False)
class Stage:
    """A watcher with its catalogue, its member and its posts.

    Attributes:
        joined_with: version in the last join of the member.
    """

    hand: Hand
    content: object = FIRST
    leads: bool = True
    joined_with: int | None = 1
    instance_id: str | None = None
    generation: int = 4
    posted: list[Any] = field(factory=list)
    lookup: CatalogueLookup = field(init=False)
    watcher: CatalogueWatcher = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.lookup = CatalogueLookup(
            source=lambda: self.content, timeout_ms=100, warn=lambda *_, **__: None
        )
        self.watcher = CatalogueWatcher(
            lookup=self.lookup,
            refresh_ms=5_000,
            member=self.member,
            leads=lambda: self.leads,
            shared=lambda: FIRST.resources,
            post=self.posted.append,
        )

    def member(self) -> Member:
        """Return the attributes of a member that the watcher reads."""
        changes = {
            "last_join": LastJoin(catalogue_version=self.joined_with),
            "claim_generation": self.generation,
        }
        config = MemberConfig(group_id="g", instance_id=self.instance_id)
        return replaced(new_member(config), **changes)

    def start(self) -> None:
        """Start as the member that led a round with the first catalogue."""
        self.watcher.start()
        self.hand.run()
        self.lookup.led = FIRST

    def looks(self, count: int) -> None:
        self.hand.advance(count * REFRESH_S)

    @property
    def asked(self) -> list[str]:
        return [one.reason for one in self.posted if isinstance(one, RejoinRequested)]


@pytest.fixture
def stage(hand: Hand) -> Stage:
    return Stage(hand)


@pytest.mark.parametrize("content", [SECOND, Catalogue.of({("a", 0): 9}, version=2)])
def test_leader_asks_once_for_a_round_after_a_change(stage: Stage, content: Catalogue) -> None:
    stage.start()
    stage.content = content
    stage.looks(9)
    assert stage.posted[2:] == [
        CatalogueSeen(version=2),
        RejoinRequested(reason="the catalogue changed"),
    ]


def test_follower_gives_the_leader_time(stage: Stage) -> None:
    stage.leads = False
    stage.start()
    stage.content = SECOND
    stage.looks(3)
    assert stage.posted[2:] == [CatalogueSeen(version=2)]
    stage.looks(1)
    assert stage.asked == ["a newer catalogue than the group's"]


def test_follower_that_came_back_as_a_static_member_asks_until_a_round_begins(stage: Stage) -> None:
    """Its join began no round (KIP-345), so the leader has not received its version."""
    stage.leads, stage.instance_id = False, "w1"
    stage.start()
    stage.looks(4)
    assert stage.asked == ["a newer catalogue than the group's"]
    stage.generation += 1
    stage.looks(9)
    assert len(stage.asked) == 1


def test_look_when_the_application_knows_of_a_change_is_at_once(stage: Stage) -> None:
    stage.start()
    stage.content = SECOND
    for _ in range(3):
        stage.watcher.look_soon()
    assert len(stage.hand.jobs("coopgroup-catalogue")) == 2  # one look, and the next regular one
    stage.hand.run()
    assert len(stage.asked) == 1


def test_watcher_that_is_stopped_looks_no_more(stage: Stage) -> None:
    stage.watcher.start()
    stage.watcher.stop()
    stage.watcher.look_soon()
    assert (stage.hand.jobs(), stage.posted) == ([], [CatalogueSeen(version=1)])
