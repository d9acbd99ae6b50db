"""The leader's look-up of the catalogue is never older than a version known to a member."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from attrs import define, field

from coopgroup.assignors import StickyAssignor
from coopgroup.core.leader import NO_LAGS, TopicMetadata, lead
from coopgroup.core.member import Member, MemberConfig, new_member
from coopgroup.core.member.events import CatalogueSeen, RejoinRequested, SubscriptionChanged
from coopgroup.core.member.parts import LastAssignment, LastJoin
from coopgroup.core.model import EMPTY, ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.model.replacing import replaced
from coopgroup.core.policies.policy import RoundContext
from coopgroup.core.protocol.digests import names_digest
from coopgroup.core.session import DecisionMade
from coopgroup.groups.catalogue import EVERYTHING, Catalogue
from coopgroup.groups.lookup import CatalogueLookup, CatalogueWatcher
from coopgroup.policies import SimplePolicy
from coopgroup.protocol import (
    Subscription,
    UserData,
    decode_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.worker import Worker
from tests.support.by_hand import Hand

OLD = Catalogue.of({("sink", -1): 1, ("sink", 0): 5}, version=3)
NEW = Catalogue.of({("sink", -1): 1}, version=4)


@define(eq=False)
class Source:
    """A catalogue that the test changes.

    Attributes:
        content: catalogue to return, or exception to raise.
    """

    content: object = OLD
    looks: int = 0
    told: list[int | None] = field(factory=list)
    warned: list[str] = field(factory=list)

    def __call__(self, told: int | None) -> object:
        self.looks += 1
        self.told.append(told)
        if isinstance(self.content, BaseException):
            raise self.content
        return self.content

    def lookup(self, timeout_ms: int = 100) -> CatalogueLookup:
        return CatalogueLookup(
            source=self,
            timeout_ms=timeout_ms,
            warn=lambda event, error="is over", **_: self.warned.append(f"{event}: {error}"),
        )


def test_static_member_that_takes_everything_has_its_own_words_noted() -> None:
    """The member compares the note with its subscription; catalogue names would always differ."""
    member = attrs.evolve(_member("a", version=3), group_instance_id="a")
    request = Source().lookup().read([member])
    round_ = lead(
        request,
        TopicMetadata(resources=OLD.resources),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=RoundContext(leader_id="a", generation=-1, now_ms=0, state=None),
    )
    noted = decode_assignment(round_.assignments[0][1], index_min=-1)
    assert noted.topics_digest == names_digest((EVERYTHING,))


def _member(
    name: str,
    *,
    topics: tuple[str, ...] = (EVERYTHING,),
    version: int | None = None,
    owned: str = "",
    declined: str = "",
    warm: ResourceSet | None = None,
) -> JoinedMember:
    content = encode_subscription(
        Subscription(
            topics=topics,
            user_data=encode_user_data(
                UserData(
                    catalogue_version=version,
                    declined=ResourceSet({declined: [-1]} if declined else {}),
                    warm=warm,
                ),
                index_min=-1,
            ),
            owned=ResourceSet({owned: [-1]} if owned else {}),
        ),
        index_min=-1,
    )
    return JoinedMember(member_id=name, group_instance_id=None, metadata=content)


@pytest.mark.parametrize("is_closed", [False, True])
def test_leader_that_is_behind_waits_for_the_newer_catalogue(
    hand: Hand, *, is_closed: bool
) -> None:
    source, began_s = Source(), hand.now_s
    lookup = source.lookup(timeout_ms=10_000)

    def go_on() -> None:
        if is_closed:
            lookup.close()
        else:
            source.content = NEW

    Worker("writer").submit(go_on, after_s=4.0)
    request = lookup.read((_member("a", version=4),))
    assert 4.0 <= hand.now_s - began_s < 4.1
    if not is_closed:
        assert lookup.metadata(request.topics).resources == NEW.resources


def test_version_that_one_member_alone_names_is_passed_over_after_a_minute(hand: Hand) -> None:
    source = Source()
    lookup = source.lookup(timeout_ms=0)
    honest, liar = _member("a", version=3), _member("b", version=2**63 - 1)
    for pause_s in (0.0, 59.0):
        hand.advance(pause_s)
        lookup.read([honest, liar])
        with pytest.raises(LookupError, match=str(2**63 - 1)):
            lookup.metadata(())
    hand.advance(1.0)
    lookup.read([honest, liar])
    assert lookup.metadata(()).resources == OLD.resources
    assert [one.partition(":")[0] for one in source.warned] == ["catalogue_version_unconfirmed"]
    lookup.read([liar, _member("c", version=4)])  # two members name a newer version
    with pytest.raises(LookupError):
        lookup.metadata(())


def test_catalogue_that_cannot_be_read_is_the_last_one() -> None:
    """Claimed resources count as subscribed: a round that moves nothing revokes nothing."""
    source = Source(content=OSError("gone"))
    lookup = source.lookup()
    request = lookup.read((_member("a", owned="kept"),))
    assert request.claims[0].topics == ("kept",)
    for ask in (lambda: lookup.metadata(()), lambda: lookup.lags(ResourceSet())):
        with pytest.raises(LookupError, match="could not be read so far"):
            ask()
    source.content = OLD
    assert lookup.look() == OLD
    source.content = "no catalogue"
    assert lookup.look() == OLD
    assert source.warned[-1].startswith("catalogue_unavailable: ConfigurationError")


def test_catalogue_that_stays_unreadable_is_told_rarely_and_when_it_can_be_read(
    hand: Hand,
) -> None:
    """A leader reads it each second."""
    source = Source(content=OSError("gone"))
    lookup = source.lookup()
    for _ in range(600):
        lookup.look()
        hand.advance(1.0)
    assert source.warned == ["catalogue_unavailable: OSError: gone"]
    lookup.look()
    assert len(source.warned) == 2
    source.content = OLD
    for _ in range(2):
        lookup.look()
    assert source.warned[2:] == ["catalogue_available: is over"]


class Mute(Exception):  # noqa: N818
    """An exception of an application that fails to show itself."""

    def __repr__(self) -> str:
        raise ValueError("no words")

    __str__ = __repr__


def test_catalogue_whose_error_shows_nothing_is_the_last_one() -> None:
    source = Source(content=Mute())
    assert source.lookup().look() is None
    assert source.warned == ["catalogue_unavailable: Mute: …"]


def test_look_when_an_earlier_one_hangs_does_not_join_it() -> None:
    """A hanging application costs one thread, not one per round."""
    source, found = Source(), list[Catalogue | None]()

    def hang(_: int | None) -> Catalogue:
        found.append(lookup.look())
        return OLD

    lookup = attrs.evolve(source.lookup(timeout_ms=0), source=hang)
    assert lookup.look() == OLD
    assert found == [None]
    assert source.warned == [
        "catalogue_unavailable: an earlier look has not ended yet",
        "catalogue_available: is over",
    ]


@pytest.mark.parametrize("version", [2, None])
def test_look_when_the_catalogue_goes_back_says_so_once(version: int | None) -> None:
    """The older catalogue is not shared, and users need the reason."""
    source = Source(OLD)
    lookup = source.lookup()
    lookup.look()
    source.content = Catalogue.of([("a", 0)], version=version)
    assert (lookup.look(), lookup.look()) == (OLD, OLD)
    assert source.warned == [f"catalogue_is_older: version {version} found, 3 known: not shared"]


@pytest.mark.parametrize("version", [3, None])
def test_assignments_carry_the_version_of_the_round(version: int | None) -> None:
    """A member reads up to it before it starts anything."""
    source = Source(Catalogue.of([("sink", 0)], version=version))
    lookup = source.lookup()
    request = lookup.read((_member("a"), _member("b")))
    decision = lead(
        request,
        lookup.metadata(request.topics),
        NO_LAGS,
        assignor=StickyAssignor(),
        policy=SimplePolicy(),
        context=RoundContext(leader_id="a", generation=-1, now_ms=0, state=None),
    )
    source.content = Catalogue.of([("sink", 0)], version=4)
    lookup.look()  # the round was decided on the catalogue before
    complete = lookup.complete(DecisionMade(generation=1, decision=decision))
    told = [
        decode_assignment(content, index_min=-1, has_catalogue=True)
        for _, content in complete.decision.assignments
    ]
    assert [one.catalogue_version for one in told] == [version, version]
    assert sum(len(one.assigned) for one in told) == 1


@pytest.mark.parametrize("warm", [None, EMPTY])
def test_resource_that_its_owner_declines_is_left_out_of_the_round(
    warm: ResourceSet | None,
) -> None:
    both = Catalogue.of([("kept", -1), ("sink", -1)])
    lookup = Source(both).lookup()
    owner = _member("a", owned="sink", declined="sink", warm=warm)
    lookup.read((owner, _member("b", declined="kept")))
    assert lookup.metadata(()).resources == ResourceSet({"kept": [-1]})
    assert lookup.led == both
    lookup.read((_member("a", declined="sink"), _member("b", owned="sink")))
    assert lookup.metadata(()).resources == both.resources


# --- requests for a round after a change of the catalogue -----------------------------------------


REFRESH_S = 5.0
FIRST, SECOND = Catalogue.of([("a", 0)], version=1), Catalogue.of([("a", 0), ("b", 0)], version=2)


@define(eq=False)
class Stage:
    """A watcher with its catalogue, its member and its posts.

    Attributes:
        joined_with: version in the last join of the member.
        led: version in its last assignment.
    """

    hand: Hand
    content: object = FIRST
    leads: bool = True
    joined_with: int | None = 1
    instance_id: str | None = None
    generation: int = 4
    led: int | None = None
    posted: list[Any] = field(factory=list)
    lookup: CatalogueLookup = field(init=False)
    watcher: CatalogueWatcher = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.lookup = CatalogueLookup(
            source=lambda _: self.content, timeout_ms=100, warn=lambda *_, **__: None
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
            "last_assignment": LastAssignment(catalogue_version=self.led),
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


def test_leader_asks_again_for_a_list_that_came_back(stage: Stage) -> None:
    stage.start()
    for content in (SECOND, Catalogue.of([("a", 0)], version=3)):
        stage.content = content
        stage.looks(1)
    stage.content = attrs.evolve(SECOND, version=4)
    stage.looks(1)
    assert stage.asked == ["the catalogue changed"] * 2


def test_follower_gives_the_leader_time(stage: Stage) -> None:
    stage.leads = False
    stage.start()
    stage.content = SECOND
    stage.looks(3)
    assert stage.posted[2:] == [CatalogueSeen(version=2)]
    stage.looks(1)
    assert stage.asked == ["a newer catalogue than the group's"]


@pytest.mark.parametrize("led", [1, 2])
def test_follower_is_silent_about_a_newer_version_of_the_list_that_is_shared(
    stage: Stage, led: int
) -> None:
    """Only definitions have changed since, so there is nothing to share."""
    stage.leads, stage.led = False, led
    stage.start()
    stage.content = SECOND
    stage.looks(1)
    stage.content = attrs.evolve(SECOND, version=3)
    stage.looks(9)
    assert bool(stage.asked) is (led == 1)


def test_leader_needs_no_round_for_changed_definitions(stage: Stage) -> None:
    stage.start()
    stage.content = Catalogue.of([("a", 0)], version=2, definitions={("a", 0): "new"})
    stage.looks(9)
    assert stage.posted[2:] == [CatalogueSeen(version=2)]


def test_each_changed_catalogue_is_told_once(stage: Stage) -> None:
    told: list[int | None] = []
    stage.lookup.on_read = lambda: told.append(
        None if stage.lookup.known is None else stage.lookup.known.version
    )
    stage.start()
    stage.looks(2)
    stage.content = SECOND
    stage.looks(2)
    assert told == [1, 2]


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


def test_watcher_joins_and_reads_again_after_any_failure(stage: Stage) -> None:
    def fail() -> None:
        raise OSError("a handler of the log")

    stage.lookup.on_read = fail
    with pytest.raises(OSError, match="a handler"):
        stage.start()
    assert stage.posted == [SubscriptionChanged(topics=("*",))]
    stage.content = SECOND
    with pytest.raises(OSError, match="a handler"):
        stage.looks(1)
    stage.lookup.on_read = lambda: None
    stage.looks(1)
    assert CatalogueSeen(version=2) in stage.posted


def test_watcher_that_is_stopped_looks_no_more(stage: Stage) -> None:
    stage.watcher.start()
    stage.watcher.stop()
    stage.watcher.look_soon()
    assert (stage.hand.jobs(), stage.posted) == ([], [CatalogueSeen(version=1)])


def test_metadata_have_the_weights_of_the_catalogue() -> None:
    lookup = Source().lookup()
    lookup.read([_member("a")])
    metadata = lookup.metadata(())
    assert metadata.weights is not None
    assert dict(zip(map(tuple, metadata.resources), metadata.weights.tolist(), strict=True)) == {
        ("sink", -1): 1,
        ("sink", 0): 5,
    }
