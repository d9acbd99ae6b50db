"""Notices that wait for the application, and the events that make them void."""

from coopgroup.kafka.application_inbox import ApplicationInbox
from coopgroup.member.effects import FailMember, GrantResources, LoseResources, RevokeResources
from coopgroup.model import ResourceSet

SOME = ResourceSet({"orders": [0, 1]})
GRANT = GrantResources(resources=SOME)
REVOCATION = RevokeResources(resources=SOME)
LOSS = LoseResources(resources=SOME, cause="lease expired")
FAILURE = FailMember(code=82, message="fenced")


def _all(inbox: ApplicationInbox) -> list[object]:
    taken: list[object] = []
    while (notice := inbox.take()) is not None:
        taken.append(notice)
    return taken


def test_notices_are_taken_in_their_order() -> None:
    """The application sees notices in the order of the group's thread."""
    inbox = ApplicationInbox()
    inbox.put(GRANT)
    inbox.put(REVOCATION)
    assert inbox.waiting
    assert _all(inbox) == [GRANT, REVOCATION]
    assert inbox.take_call() is None
    assert not inbox.waiting


def test_earlier_notices_are_void_when_everything_is_lost() -> None:
    """A grant or a revocation of an ended membership means nothing; an error still does."""
    inbox = ApplicationInbox()
    for notice in (GRANT, FAILURE, REVOCATION, LOSS, GRANT):
        inbox.put(notice)
    assert _all(inbox) == [FAILURE, LOSS, GRANT]


def test_only_errors_and_calls_stay_when_the_group_is_left() -> None:
    """The application must not begin an old grant when it subscribes again."""
    inbox = ApplicationInbox()
    called: list[str] = []
    inbox.call_soon(lambda: called.append("on_commit"))
    for notice in (GRANT, FAILURE, LOSS):
        inbox.put(notice)
    inbox.clear()
    assert _all(inbox) == [FAILURE]
    call = inbox.take_call()
    assert call is not None
    call()
    assert called == ["on_commit"]
