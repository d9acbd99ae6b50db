"""A measured consumption rate reaches the next join, and changes nothing else."""

import attrs

from coopgroup.member import RequestKind
from coopgroup.member.effects import Send
from coopgroup.member.events import RejoinRequested
from coopgroup.model.group_api import JoinGroupRequest
from coopgroup.protocol import decode_subscription, decode_user_data
from coopgroup.session import Session, step, with_rate
from tests.support.members import stable


def test_rate_when_measured_is_told_by_the_next_join() -> None:
    driven = stable()
    session = with_rate(with_rate(Session(member=driven.member), 7.5), 1_234.5)
    again = RejoinRequested(reason="a test")
    after, effects = step(session, again, now_ms=driven.now_ms)
    (request,) = [
        one.request
        for one in effects
        if isinstance(one, Send) and isinstance(one.request, JoinGroupRequest)
    ]
    told = decode_user_data(decode_subscription(request.protocols[0][1]).user_data)
    assert told is not None
    assert told.consumption_rate_per_s == 1_234.5
    assert after.member.next_join.consumption_rate_per_s == 1_234.5
    assert RequestKind.JOIN_GROUP in after.member.outstanding


def test_rate_when_it_is_the_same_changes_nothing() -> None:
    session = Session(member=stable().member)
    assert with_rate(session, None) is session
    told = with_rate(session, 3.0)
    assert with_rate(told, 3.0) is told
    assert attrs.evolve(told, member=session.member) == session
