"""A group without a broker: the test gives its driver the coordinator's answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from coopgroup import (
    Catalogue,
    CooperativeGroup,
    SimplePolicy,
    Warmup,
)
from coopgroup.core.member.effects import GrantResources, LoseResources
from coopgroup.core.member.error_actions import RequestKind
from coopgroup.core.member.events import Answered, WarmSetDeclared
from coopgroup.core.member.member import Outstanding
from coopgroup.core.member.parts import (
    NO_JOIN,
    NOTHING_TO_JOIN_FOR,
    LastJoin,
    Lease,
    NextJoin,
    Round,
)
from coopgroup.core.member.transitions import MemberState
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.group_api import SyncGroupAnswer
from coopgroup.core.model.replacing import replaced
from coopgroup.core.session import Session
from coopgroup.errors import ConfigurationError
from coopgroup.groups.work import ResourceWork
from coopgroup.kafka.membership.driver import GroupDriver
from coopgroup.protocol import Assignment, encode_assignment
from tests.support.by_hand import Hand
from tests.support.inner import inner

SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
ONE = ("x", 0)


def make(**more: Any) -> CooperativeGroup:  # noqa: ANN401  (arguments of a group)
    given = {"catalogue": [ONE], "start": lambda _: None, "stop": lambda _: None, **more}
    return CooperativeGroup(SETTINGS, **given)


@pytest.fixture
def calls() -> list[tuple[str, object]]:
    return []


@pytest.fixture(autouse=True)
def without_threads(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupDriver, "start", lambda _: None)


@pytest.fixture
def group(calls: list[tuple[str, object]]) -> Iterator[CooperativeGroup]:
    made = make(
        start=lambda one: calls.append(("start", one)),
        stop=lambda one: calls.append(("stop", one)),
    )
    yield made
    made.close(0.1)


def test_first_grant_that_comes_after_its_lease_is_never_held(
    group: CooperativeGroup,
    calls: list[tuple[str, object]],
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver, now = inner(group, "_driver"), int(hand.now_s * 1000)
    sync = Outstanding(request_id=7, sent_at_ms=now - 60_000, node_id=1, generation=5)
    member = replaced(
        driver.member,
        state=MemberState.SYNCING,
        next_join=NextJoin(topics=("*",)),
        last_join=LastJoin(topics=("*",)),
        member_id="m",
        generation=5,
        lease=Lease(settled_at_ms=now - 60_000, until_ms=now - 15_000),
        round=Round(protocol="resources"),
        outstanding={RequestKind.SYNC_GROUP: sync},
        next_request_id=8,
    )
    monkeypatch.setattr(driver, "_session", Session(member=member))
    heard = list[tuple[type, bool, float]]()
    put = ResourceWork.put

    def listen(work: ResourceWork, notice: Any) -> None:  # noqa: ANN401  (one of many effects)
        put(work, notice)
        heard.append((type(notice), group.owns(ONE), driver.lease_until_s))

    monkeypatch.setattr(ResourceWork, "put", listen)
    late = Assignment(assigned=ResourceSet.from_pairs([ONE]), revoked=None)
    answer = SyncGroupAnswer(error_code=0, assignment=encode_assignment(late, index_min=-1))
    inner(driver, "_take")(Answered(request_id=7, answer=answer))
    assert heard[-1][0] is LoseResources
    assert len(heard) == 2
    assert all((owns, lease_s) == (False, -math.inf) for _, owns, lease_s in heard)
    hand.run()
    assert calls == []


@pytest.mark.parametrize(
    ("ask", "action"),
    [(CooperativeGroup.close, "close"), (CooperativeGroup.hand_over, "hand over")],
)
def test_callback_that_would_wait_for_itself_is_refused(
    hand: Hand,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[CooperativeGroup], object],
    action: str,
) -> None:
    failures = list[str]()

    def start(_: object) -> None:
        ask(made)

    made = make(start=start, on_error=lambda failure: failures.append(str(failure.error)))
    driver = inner(made, "_driver")
    member = replaced(driver.member, claim_generation=3)
    monkeypatch.setattr(driver, "_session", Session(member=member))
    inner(made, "_work").put(GrantResources(resources=ResourceSet.from_pairs([ONE])))
    hand.run()
    assert failures == [f"a callback cannot {action}: that would wait for itself"]
    made.close()


def test_hand_over_before_it_has_joined_is_refused(group: CooperativeGroup) -> None:
    """Otherwise the group would later join without resources."""
    with pytest.raises(RuntimeError, match="joined before"):
        group.hand_over(0.1)


def test_hand_over_waits_for_a_round(
    group: CooperativeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round may still grant a resource."""
    group.join()
    driver = inner(group, "_driver")
    joining = replaced(driver.member, state=MemberState.JOINING, next_join=NextJoin(topics=("*",)))
    monkeypatch.setattr(GroupDriver, "member", joining)
    assert not group.hand_over(0.0)
    left = {
        "state": MemberState.STABLE,
        "next_join": NOTHING_TO_JOIN_FOR,
        "last_join": NO_JOIN,
    }
    monkeypatch.setattr(GroupDriver, "member", replaced(joining, **left))
    assert group.hand_over(0.0)
    monkeypatch.undo()


@pytest.mark.parametrize("hands_over", [True, False])
def test_close_after_a_hand_over_leaves_for_good(
    monkeypatch: pytest.MonkeyPatch, *, hands_over: bool
) -> None:
    """With `coopgroup.state.dir`, the group would wait for a process that never comes back."""
    left = list[bool]()
    monkeypatch.setattr(GroupDriver, "leave", lambda _, reason, *, for_good: left.append(for_good))
    with make() as made:
        if hands_over:
            made.hand_over(0.0)
    assert left == [hands_over]


def test_group_is_joined_once_and_left_at_the_end_of_its_block() -> None:
    with make() as group, pytest.raises(RuntimeError, match="joined once"):
        group.join()
    with pytest.raises(RuntimeError, match="joined once"):
        group.join()


def test_reports_of_the_last_stops_are_made_before_the_topic_of_telemetry_ends(
    group: CooperativeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: behind a slow listener they came after it, and no topic got them."""
    ends = list[str]()
    monkeypatch.setattr(GroupDriver, "stop", lambda _: ends.append("driver"))
    monkeypatch.setattr(ResourceWork, "wait_told", lambda _: ends.append("reports"))
    group.join()
    group.close()
    assert ends == ["reports", "driver"]


@pytest.mark.parametrize(
    ("more", "error", "said"),
    [
        *(
            ({name: 5}, TypeError, f"^{name} expects")
            for name in ("lost", "warm", "cool", "on_error")
        ),
        ({"found": [ONE]}, TypeError, "^found and cool expect warm beside them$"),
        ({"cool": print}, TypeError, "^found and cool expect warm beside them$"),
        *(
            (
                {"warm": print, "found": found},
                ConfigurationError,
                r"^found: .*\(name, index\) pairs$",
            )
            for found in (5, [5], [("x",)])
        ),
        # Otherwise `cool` deletes the state as soon as the member has joined.
        (
            {"warm": print, "found": [("a", 0)]},
            ConfigurationError,
            r"^found: got \[\('a', 0\)\], expected a policy with the option warmup beside it$",
        ),
        # A user who forgets the parentheses would otherwise share nothing, forever.
        ({"catalogue": Catalogue}, ConfigurationError, "catalogue: got"),
    ],
)
def test_wrong_arguments_fail(more: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        make(**more)


def test_member_declares_what_it_found_before_it_subscribes() -> None:
    group = make(warm=print, found=[ONE], policy=SimplePolicy(warmup=Warmup()))
    assert group.warmups() == ()
    posted = list[Any]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(GroupDriver, "post", lambda _, event: posted.append(event))
        group.join()
        assert posted[0] == WarmSetDeclared(warm=ResourceSet.from_pairs([ONE]))
    group.close(0.1)


def test_member_data_takes_precedence_over_its_key() -> None:
    given = {"coopgroup.member": '{"places": 1}'}
    for member, told in ((None, {"places": 1}), ({"places": 4}, {"places": 4})):
        group = make(member=member, **given)
        assert inner(group, "_driver").member.config.traits == told
        group.close()
