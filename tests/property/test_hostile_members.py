"""One member may send any bytes, and the group still works for the others.

The leader is not the hostile member. Each example plays several rounds: the other members obey, the
hostile members send other arbitrary bytes in each round. The checks are written over plain sets and
share nothing with `coopgroup.core.policies.safety`.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

import attrs
from hypothesis import assume, given
from hypothesis import strategies as st

from coopgroup import (
    DeferredPolicy,
    IncrementalPolicy,
    LagAwareAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    SimplePolicy,
    StickyAssignor,
)
from coopgroup.core.leader import Lags, TopicMetadata, read_members
from coopgroup.core.leader.rounds import lead_round
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import JoinedMember
from coopgroup.core.protocol.user_data import MAGIC
from coopgroup.core.session import DecideRound, DecisionMade, LeaderContext
from coopgroup.protocol import (
    Subscription,
    UserData,
    decode_assignment,
    decode_kafka_assignment,
    encode_subscription,
    encode_user_data,
)
from coopgroup.telemetry import Envelope, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.policies.policy import Policy

Pairs = frozenset[tuple[str, int]]

EXISTING: Final = ResourceSet({"orders": range(6), "payments": range(4)})
LAGS: Final = Lags.from_mapping({"orders": {0: 10**6, 3: 5}, "payments": {2: 7_000}})
ROUNDS_MAX: Final = 12
WAIT_MS: Final = 10_000
INT32_MAX: Final = 2**31 - 1
KAFKA_PROTOCOLS: Final = ("cooperative-sticky", "range", "roundrobin", "sticky")

# --- what a hostile member sends ----------------------------------------------------------------

int16s = st.sampled_from((-(2**15), -1, 0, 1, 2, 3, 4, 9, 2**15 - 1))
int32s = st.one_of(
    st.sampled_from((-(2**31), -2, -1, 0, 1, 7, INT32_MAX - 1, INT32_MAX)),
    st.integers(-(2**31), INT32_MAX),
)
int64s = st.one_of(
    st.sampled_from((-(2**63), -1, 0, 1, 2**63 - 1)), st.integers(-(2**63), 2**63 - 1)
)
foreign_names = st.one_of(
    st.sampled_from(("", ".", "..", "a b", "a/b", "*", "orders\0", "\0", "é", "^.*", "x" * 300)),
    st.text(max_size=12),
).filter(lambda name: name not in EXISTING.names)
names = st.one_of(st.sampled_from(EXISTING.names), foreign_names)


def string(text: str | None) -> bytes:
    """Return a NULLABLE_STRING of the wire format."""
    if text is None:
        return b"\xff\xff"
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack(">h", len(raw)) + raw


def nullable_bytes(content: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if content is None else struct.pack(">i", len(content)) + content


our_user_data = st.builds(
    lambda version, delay, loss, rate, catalogue, rest: (
        MAGIC + struct.pack(">hiiqq", version, delay, loss, rate, catalogue)[: 6 + rest]
    ),
    int16s,
    int32s,
    int32s,
    int64s,
    int64s,
    st.sampled_from((0, 4, 8, 16, 24)),
)
user_data = st.one_of(
    st.none(),
    st.binary(max_size=24),
    our_user_data,
    int32s.map(lambda generation: struct.pack(">i", generation)),
)


def subscriptions(owned_names: st.SearchStrategy[str]) -> st.SearchStrategy[bytes]:
    """Draw well-formed subscriptions with any content, even if no client of ours sends it."""
    owned = st.lists(st.tuples(owned_names, st.lists(int32s, max_size=4)), max_size=4)
    return st.builds(
        lambda version, topics, data, owned, generation, rack, rest: (
            struct.pack(">hi", version, len(topics))
            + b"".join(string(topic) for topic in topics)
            + nullable_bytes(data)
            + struct.pack(">i", len(owned))
            + b"".join(
                string(name) + struct.pack(f">i{len(indices)}i", len(indices), *indices)
                for name, indices in owned
            )
            + struct.pack(">i", generation)
            + string(rack)
            + rest
        ),
        int16s,
        st.lists(names, max_size=6),
        user_data,
        owned,
        int32s,
        st.one_of(st.none(), st.text(max_size=4)),
        st.binary(max_size=4),
    )


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw a subscription of our own with some bytes replaced, perhaps truncated."""
    content = bytearray(
        encode_subscription(
            Subscription(
                topics=("orders", "payments"),
                owned=ResourceSet({"orders": [0, 5]}),
                generation=draw(st.integers(-1, 9)),
                user_data=encode_user_data(UserData(rejoin_in_ms=5, catalogue_version=3)),
            )
        )
    )
    for _ in range(draw(st.integers(1, 4))):
        content[draw(st.integers(0, len(content) - 1))] = draw(st.integers(0, 255))
    return bytes(content[: draw(st.integers(0, len(content)))])


hostile_bytes = st.one_of(st.binary(max_size=64), damaged(), subscriptions(names))
harmless_claims = st.one_of(st.binary(max_size=64), subscriptions(foreign_names))


# --- the group ----------------------------------------------------------------------------------


@attrs.frozen
class Person:
    """A member that obeys."""

    holds: Pairs = frozenset()
    generation: int = -1


policies = st.sampled_from(
    (
        SimplePolicy(),
        DeferredPolicy(scheduled_rebalance_timeout_ms=WAIT_MS),
        IncrementalPolicy(
            scheduled_rebalance_timeout_ms=WAIT_MS, max_moves_per_round=2, move_interval_ms=1_000
        ),
    )
)
assignors = st.sampled_from(
    (StickyAssignor(), LagAwareAssignor(), RangeAssignor(), RoundRobinAssignor())
)


def joined(member_id: str, metadata: bytes) -> JoinedMember:
    """Return a member as in the answer to JoinGroup."""
    return JoinedMember(member_id=member_id, group_instance_id=None, metadata=metadata)


def said(person: Person) -> bytes:
    """Return the subscription of a member that obeys."""
    return encode_subscription(
        Subscription(
            topics=tuple(EXISTING.names),
            owned=ResourceSet.from_pairs(person.holds),
            generation=person.generation,
            user_data=encode_user_data(UserData()),
        )
    )


@attrs.define
class Game:
    """Rounds of a group, led by the member `a`."""

    policy: Policy
    assignor: Assignor
    protocol: str = "coopgroup"
    people: dict[str, Person] = attrs.field(factory=lambda: {"a": Person(), "c": Person()})
    generation: int = 0
    now_ms: int = 0
    last: DecisionMade | None = None

    def play(self, hostile: Mapping[str, bytes]) -> None:
        """Play one round; the members that obey carry out their assignment, also its pauses."""
        members = tuple(
            joined(member_id, content)
            for member_id, content in (
                *((name, said(person)) for name, person in self.people.items()),
                *hostile.items(),
            )
        )
        context = LeaderContext(
            leader_id="a",
            generation=self.generation,
            now_ms=self.now_ms,
            state=None if self.last is None else self.last.decision.state,
            protocol=self.protocol,
        )
        self.generation += 1
        duty = DecideRound(generation=self.generation, members=members, context=context)
        outcome = lead_round(
            duty,
            read_members(members),
            TopicMetadata(resources=EXISTING),
            LAGS,
            assignor=self.assignor,
            policy=self.policy,
        )
        self.last = outcome
        assert not outcome.decision.refused, outcome.decision.records
        for record in outcome.decision.records:
            envelope = Envelope(at_ms=0, group="g", member="a", generation=1, record=record)
            assert json.dumps(to_json(envelope))
        answers = dict(outcome.decision.assignments)
        assert sorted(answers) == sorted([*self.people, *hostile])
        self._obey(answers)

    def _obey(self, answers: Mapping[str, bytes]) -> None:
        before = {name: person.holds for name, person in self.people.items()}
        wait_ms = 100
        for name in self.people:
            if self.protocol in KAFKA_PROTOCOLS:
                assigned = frozenset(decode_kafka_assignment(answers[name]).assigned)
            else:
                answer = decode_assignment(answers[name], skips_rest=True)
                assigned = frozenset(answer.assigned)
                rejoin_in_ms = answer.rejoin_in_ms or 0
                assert rejoin_in_ms <= WAIT_MS, "waits for too long"
                wait_ms = max(wait_ms, rejoin_in_ms)
            assert assigned <= frozenset(EXISTING)
            for other, holds in before.items():
                stays = holds if self.protocol not in KAFKA_PROTOCOLS else frozenset()
                assert other == name or not assigned & stays, "two owners"
            self.people[name] = Person(holds=assigned, generation=self.generation)
        self.now_ms += wait_ms
        held = [pair for person in self.people.values() for pair in person.holds]
        assert len(held) == len(set(held)), "assigned twice"

    @property
    def owned(self) -> Pairs:
        """Return the resources of the members that obey."""
        return frozenset().union(*(person.holds for person in self.people.values()))


# --- properties ---------------------------------------------------------------------------------


@given(
    policy=policies,
    assignor=assignors,
    protocol=st.just("coopgroup") | st.sampled_from(KAFKA_PROTOCOLS),
    rounds=st.lists(
        st.dictionaries(st.sampled_from(("b", "d")), hostile_bytes), min_size=1, max_size=5
    ),
)
def test_round_goes_on_whatever_a_member_sends(
    policy: Policy, assignor: Assignor, protocol: str, rounds: list[dict[str, bytes]]
) -> None:
    """No round is refused, all members get an answer, and no resource has two owners.

    The same holds if our member leads clients of other kinds, in one of Kafka's protocols.
    """
    game = Game(policy, assignor, protocol)
    game.play({})
    for hostile in rounds:
        game.play(hostile)


@given(policy=policies, assignor=assignors, sent=harmless_claims, before=st.booleans())
def test_group_comes_to_rest_beside_a_member_that_sends_anything(
    policy: Policy, assignor: Assignor, sent: bytes, *, before: bool
) -> None:
    """The other members own all that the hostile member neither subscribes to nor claims."""
    request = read_members([joined("b", sent)])
    assume(not set(request.topics) & set(EXISTING.names))
    game = Game(policy, assignor)
    if before:
        game.play({})
    for _ in range(ROUNDS_MAX):
        game.play({"b": sent})
    assert game.owned == frozenset(EXISTING)
    assert game.last is not None
    assert not game.last.decision.plan.follow_up
