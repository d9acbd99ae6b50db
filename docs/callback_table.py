"""The table of a consumer's callbacks.

A partition of an application is in a phase. An input is a notice of the group, the end of a
callback, or a call of the application. `RULES` has the effect of each input in each phase. Tests
hold each rule against the consumer that is polled and against the consumer of asyncio.
"""

import enum
from typing import Final

from attrs import frozen


class Phase(enum.Enum):
    """The phases of a partition, with their meanings."""

    GONE = "the member does not own it"
    ASSIGNED = "the group has assigned it, and no poll has served that"
    STARTING = "`on_assign` runs"
    WORKING = "`on_assign` has ended"
    STOPPING = "its stop goes on after `on_revoke` (`revoke_later`); with asyncio, `on_revoke` runs"
    COMMITTING = "its last commit waits for the group coordinator"
    LOSING = "`on_lost` runs; without `on_lost`, `on_revoke`"


class Input(enum.Enum):
    """The inputs."""

    POLLED = "a poll"
    REVOKED = "the group revokes it"
    LOST = "the membership is lost"
    CLOSED = "`close`, or `unsubscribe`"
    OVERDUE = "`max.poll.interval.ms` have passed since `on_revoke`"
    STARTED = "`on_assign` ends"
    STOPPED = "`finish_revoke`; with asyncio, `on_revoke` ends"
    COMMITTED = "the coordinator answers"
    HEARD = "`on_lost` ends"


class Effect(enum.Enum):
    """The effects."""

    ASSIGN = "`on_assign`"
    REVOKE = "`on_revoke`"
    LOSE = "`on_lost`"
    COMMIT = "a commit"
    STARTED = "`resources_started`"
    REVOKED = "`resources_stopped` (revoked)"
    ENDED = "`resources_stopped` (lost)"
    ANSWER = "the answer to the group"


_NEXT: Final = {
    Effect.ASSIGN: Phase.STARTING,
    Effect.STARTED: Phase.WORKING,
    Effect.REVOKE: Phase.STOPPING,
    Effect.COMMIT: Phase.COMMITTING,
    Effect.LOSE: Phase.LOSING,
}


@frozen
class Rule:
    """The effects of an input in a phase, in their order."""

    phase: Phase
    input: Input
    effects: tuple[Effect, ...]
    why: str

    @property
    def to(self) -> Phase:
        """Return the next phase."""
        return next((_NEXT[one] for one in self.effects if one in _NEXT), Phase.GONE)


# fmt: off
RULES: Final = (
    Rule(Phase.ASSIGNED, Input.POLLED, (Effect.ASSIGN,),
         "The records follow after the callback."),
    Rule(Phase.ASSIGNED, Input.LOST, (Effect.ANSWER,),
         "The application has not heard of it."),
    Rule(Phase.ASSIGNED, Input.CLOSED, (),
         "The application has not heard of it."),
    Rule(Phase.STARTING, Input.STARTED, (Effect.STARTED,),
         "Also if the callback raises."),
    Rule(Phase.STARTING, Input.REVOKED, (Effect.REVOKE,),
         "It comes after the end of `on_assign`."),
    Rule(Phase.STARTING, Input.LOST, (Effect.LOSE,),
         "It comes after the end of `on_assign`; with asyncio, beside it."),
    Rule(Phase.STARTING, Input.CLOSED, (Effect.REVOKE,),
         "`close` in `on_assign` calls it there; with asyncio, after the end of `on_assign`."),
    Rule(Phase.WORKING, Input.REVOKED, (Effect.REVOKE,),
         "The next owner waits for it."),
    Rule(Phase.WORKING, Input.LOST, (Effect.LOSE,),
         "Another member may own it already."),
    Rule(Phase.WORKING, Input.CLOSED, (Effect.REVOKE,),
         "This stop cannot be put off."),
    Rule(Phase.STOPPING, Input.STOPPED, (Effect.COMMIT,),
         "The next owner begins at this offset."),
    Rule(Phase.STOPPING, Input.LOST, (Effect.LOSE,),
         "The stop must end, because another member may own it already."),
    Rule(Phase.STOPPING, Input.OVERDUE, (Effect.LOSE,),
         "Its state is no longer warm. With asyncio, the group does not wait for `on_lost`."),
    Rule(Phase.STOPPING, Input.CLOSED, (Effect.COMMIT,),
         "A supervisor may kill a slow process; with asyncio, `on_revoke` ends first."),
    Rule(Phase.COMMITTING, Input.COMMITTED, (Effect.REVOKED, Effect.ANSWER),
         "Also if the commit was refused."),
    Rule(Phase.COMMITTING, Input.LOST, (Effect.REVOKED, Effect.ANSWER),
         "The work has ended already. The commit fails."),
    Rule(Phase.LOSING, Input.HEARD, (Effect.ENDED, Effect.ANSWER),
         "The member may join again."),
    Rule(Phase.LOSING, Input.CLOSED, (Effect.ENDED,),
         "A commit would be refused."),
)
"""An input that a phase lacks changes nothing, or waits for the next phase."""
# fmt: on


def table() -> str:
    """Return the table, and the meanings of the phases, in Markdown."""
    rows = [
        f"| {rule.phase.name} | {rule.input.value} "
        f"| {', '.join(one.value for one in rule.effects) or 'nothing'} | {rule.to.name} "
        f"| {rule.why} |"
        for rule in RULES
    ]
    meanings = [f"- {phase.name}: {phase.value}" for phase in Phase]
    head = ["| phase | what happens | effect | next phase | because |", "|---|---|---|---|---|"]
    return "\n".join([*meanings, "", *head, *rows])
