"""The rules of a round as five ordered tables: in each, the first row that fits decides.

    CAUSES            why a resource is unclaimed, one decision for each resource
    LOSS_ACTIONS      what happens to a loss, one for each departed member
    MOVE_MODES        whether resources may move, one for the round
    RECEIVERS         who gets a resource that is free or leaves its owner, one for each resource
    RESOURCE_ACTIONS  what happens to a resource, one for each resource

`LAG_STEPS` is a sixth one, for the checks of lags between rounds.

A row names the facts that must hold; `not ` before a fact denies it. The last row fits always. The
same table decides one case, or with arrays a million cases together. The documentation shows these
tables as they stand here, with the meaning of each fact and the reason of each row.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coopgroup.core.model.resource_set import BoolArray

_NOT: Final = "not "

Action = TypeVar("Action", bound=Enum)


@frozen
class Row(Generic[Action]):
    """One row.

    Attributes:
        when: facts that must hold, all of them; none for the last row.
        action: the decision if they hold.
        why: the reason, for a reader.
    """

    when: tuple[str, ...]
    action: Action
    why: str

    def fits(self, facts: Mapping[str, bool]) -> bool:
        """Return whether the row fits one case."""
        return all(facts[one.removeprefix(_NOT)] != one.startswith(_NOT) for one in self.when)

    def fits_each(self, facts: Mapping[str, BoolArray]) -> BoolArray:
        """Return which of N cases the row fits, for a row with facts: bool (N,)."""
        first, *others = (
            ~facts[one.removeprefix(_NOT)] if one.startswith(_NOT) else facts[one]
            for one in self.when
        )
        for other in others:
            first = first & other
        return first


@frozen
class DecisionTable(Generic[Action]):
    """Rows of a decision; the first that fits decides.

    Attributes:
        facts: the meaning of each fact, by its name.
        rows: the last one fits always.
    """

    facts: Mapping[str, str]
    rows: tuple[Row[Action], ...]

    def decide(self, **facts: bool) -> Action:
        """Decide one case.

        Args:
            facts: every fact by name.
        """
        return next(row.action for row in self.rows if row.fits(facts))

    def decide_each(self, **facts: BoolArray) -> Decided[Action]:
        """Decide N cases.

        Args:
            facts: every fact by name, as bool (N,).
        """
        *rows, last = self.rows
        actions = tuple(type(last.action))
        codes = np.select(
            [row.fits_each(facts) for row in rows],
            [np.int8(actions.index(row.action)) for row in rows],
            default=np.int8(actions.index(last.action)),
        )
        return Decided(actions=actions, codes=codes)


@frozen(eq=False)
class Decided(Generic[Action]):
    """The decisions of a table about N cases.

    Attributes:
        actions: the possible ones.
        codes: int8 (N,), positions in `actions`.
    """

    actions: tuple[Action, ...]
    codes: npt.NDArray[np.int8]

    def are(self, action: Action) -> BoolArray:
        """Return the cases with this decision: bool (N,)."""
        same: BoolArray = self.codes == self.actions.index(action)
        return same


class Cause(Enum):
    """Why a resource is unclaimed."""

    RELEASED = "its owner had to stop it, and has"
    CREATED = "no member ever owned it"
    LOST = "its owner has departed"


CAUSES: Final = DecisionTable(
    facts={
        "released": "the last round left it without an owner on purpose",
        "first_grant": "the last round granted it for the first time",
        "departed": "a member of the last round is absent",
        "owned": "it was owned before, as far as the leader knows. A leader without memory takes "
        "it from the claims: a topic of which a part is claimed was owned (Design II), and a whole "
        "catalogue of which a part is claimed",
    },
    rows=(
        Row(("released",), Cause.RELEASED, "No return is expected."),
        Row(
            ("first_grant", "not departed"),
            Cause.CREATED,
            "Its new owner missed its SyncGroup and never started it. A missed sync is not a "
            "departure (KAFKA-9848).",
        ),
        Row(("owned",), Cause.LOST, "Its owner may return."),
        Row((), Cause.CREATED, "A new topic, or more partitions of an old one."),
    ),
)


class LossAction(Enum):
    """The decision about a loss in a round."""

    RETURN = "to its owner, which has returned"
    REPLACE = "to a newcomer that counts as its owner"
    WAIT = "to no member yet"
    RELEASE = "to any member, as the assignor decides"


LOSS_ACTIONS: Final = DecisionTable(
    facts={
        "back": "the owner is present, by its member id or by its static id",
        "static": "the owner had a static id",
        "newcomer": "a new member without a static id and without rightful claims subscribes to "
        "everything that was lost, and does not replace another owner; also one with a static id "
        "if the owner is unknown",
        "expired": "the deadline has passed",
    },
    rows=(
        Row(
            ("back",),
            LossAction.RETURN,
            "An owner that returned gets its resources immediately, even at the deadline.",
        ),
        Row(
            ("newcomer", "not static"),
            LossAction.REPLACE,
            "Without a static id a process returns under a new member id, so one newcomer counts "
            "as one departed member. At the deadline, too: the newcomer has nothing yet, so giving "
            "it the loss disturbs least. A static owner can prove its identity, so no other member "
            "counts as it.",
        ),
        Row(("not expired",), LossAction.WAIT, "The owner may still return."),
        Row((), LossAction.RELEASE, "The owner did not return in time."),
    ),
)


class MoveMode(Enum):
    """Whether a round moves resources that could stay."""

    MOVE = "towards the target"
    REST = "all members keep their resources, except for moves that an earlier round planned"
    BALANCE = "all members keep their resources, except for a few moves that balance lags"


MOVE_MODES: Final = DecisionTable(
    facts={
        "joined": "an additional member joined, which does not replace a departed member",
        "waits": "a lost resource waits for its owner",
        "begun": "the group has changed permanently, in this round or in an earlier one whose "
        "target was never reached. Also true under a policy that neither waits for lost owners "
        "nor balances lags",
        "blind": "the leader does not know the past of the group",
        "returned": "a member got its resources back, or may have got them meanwhile",
        "uneven": "if all members kept their resources, counts would be less even than in the "
        "target",
        "lagging": "the leader started the round because lags were uneven for a long time; no "
        "earlier moves are pending, and the interval between moves has passed",
    },
    rows=(
        Row(
            ("joined",),
            MoveMode.MOVE,
            'Design II: "Additional members: Reassignment happens immediately via two step revoke '
            '+ assign".',
        ),
        Row(
            ("waits",),
            MoveMode.REST,
            'Design II: "In this case there should be no RevokeTopicPartitions". Earlier '
            "revocations go on, and moves that the ration postponed go on at its pace.",
        ),
        Row(
            ("begun",),
            MoveMode.MOVE,
            "Moves continue until the target is reached, even if the target changes meanwhile.",
        ),
        Row(
            ("blind", "not returned"),
            MoveMode.MOVE,
            "The leader does not know whether moves have begun, so the target decides.",
        ),
        Row(("blind", "uneven"), MoveMode.MOVE, "More than a loss has happened."),
        Row(
            ("blind",),
            MoveMode.REST,
            "As far as the leader can know, the group is as it was before the loss.",
        ),
        Row(
            ("lagging",),
            MoveMode.BALANCE,
            "A few moves that are worth it by themselves, and no other part of the target.",
        ),
        Row(
            (),
            MoveMode.REST,
            "Nothing has changed permanently. A target that differs only because lags rose and "
            "fell, or because an assignor that is not sticky orders by member ids, moves nothing.",
        ),
    ),
)


class Receiver(Enum):
    """Who gets a resource that is free or leaves its owner."""

    PROMISED = "the member for which it was stopped"
    OWNER = "the member that is, or counts as, its owner"
    TARGET = "the member in the assignor's target"


RECEIVERS: Final = DecisionTable(
    facts={
        "promised": "this round or an earlier one stops it for a member that subscribes to it and "
        "does not decline it, and the group has not changed permanently since",
        "elsewhere": "the assignor has placed it",
        "limited": "the assignor has limits, which only it knows",
        "joined": "an additional member joined",
        "given_up": "its owner was a member of the last round and gave it up by itself, and the "
        "round moves towards the target",
        "back": "its owner is back, or counts as back, and does not decline it",
    },
    rows=(
        Row(
            ("elsewhere", "limited"),
            Receiver.TARGET,
            "The assignor was shown any other receiver as the owner. The resource does not fit "
            "there, or no place is free.",
        ),
        Row(
            ("promised",),
            Receiver.PROMISED,
            "A move ends where it was to go. If the next answer of the assignor sent the resource "
            "elsewhere, even back, moves could go on without end. An exchange stays an exchange: "
            "with newer lags its first half might go to a third member.",
        ),
        Row(
            ("elsewhere", "joined"),
            Receiver.TARGET,
            "The group makes room for the additional member. What its owner got back, the next "
            "round would take.",
        ),
        Row(
            ("elsewhere", "given_up"),
            Receiver.TARGET,
            "An eager member gives up everything before each join. It would get back resources "
            "that the next round revokes, and give them up again, without end.",
        ),
        Row(("back",), Receiver.OWNER, "Even if the target has changed."),
        Row((), Receiver.TARGET, "The assignor decides where."),
    ),
)


class ResourceAction(Enum):
    """The decision about a resource in a round."""

    KEEP = "stays with its owner"
    STOP = "is stopped by all members that claim it"
    WARM = "stays with its owner until its receiver is warm"
    HOLD = "stays with its owner, and moves later or not at all"
    WAIT = "waits for the owner that lost it"
    GATHER = "waits while the group forms"
    ASK = "waits until a member that could not be read has been assigned nothing"
    GRANT = "is granted to its receiver"


RESOURCE_ACTIONS: Final = DecisionTable(
    facts={
        "claimed": "a member claims it, rightfully or not",
        "keeps": "it has a rightful owner that subscribes to it or hands over, and it exists",
        "wanted": "the target is that owner",
        "told": "an earlier round told its owner to stop it",
        "taken": "it was taken from this owner before, and meanwhile no member has joined or left, "
        "and the group has not changed permanently",
        "cold": "it would move in this round or later, and its receiver must warm up first",
        "turn": "it moves in this round, by mode and ration; or its owner hands over",
        "waits": "it is lost, and waits for its owner",
        "forms": "it was never owned, and the first members of the group wait for others",
        "unheard": "a member with an unreadable subscription may own it",
    },
    rows=(
        Row(
            ("claimed", "not keeps"),
            ResourceAction.STOP,
            "It no longer exists, its owner no longer subscribes, or equal claims cancel each "
            "other (KIP-792). No delay and no ration postpones this.",
        ),
        Row(
            ("claimed", "wanted"),
            ResourceAction.KEEP,
            "Retained: its owner continues to work during the rebalance. Other claims are stale, "
            "and those members stop it.",
        ),
        Row(
            ("claimed", "told"),
            ResourceAction.STOP,
            "It is told once more, and only to its member.",
        ),
        Row(
            ("claimed", "taken"),
            ResourceAction.KEEP,
            "A resource is taken once from each owner, so moves end, even if the answers of an "
            "assignor contradict each other.",
        ),
        Row(
            ("claimed", "cold"),
            ResourceAction.WARM,
            "The owner goes on working while the receiver restores state (KIP-441).",
        ),
        Row(
            ("claimed", "turn"),
            ResourceAction.STOP,
            "The first of the two steps of a move: revoke now, assign when no member claims it.",
        ),
        Row(
            ("claimed",),
            ResourceAction.HOLD,
            "The move must wait: for a departed owner (Design II) or for its turn (Design III). "
            "Or nothing has changed permanently, so it does not move.",
        ),
        Row(("waits",), ResourceAction.WAIT, "Its owner is still expected."),
        Row(
            ("forms",),
            ResourceAction.GATHER,
            "KIP-134: the first member of a group does not start with everything.",
        ),
        Row(("unheard",), ResourceAction.ASK, "That member may be working on it."),
        Row(
            (),
            ResourceAction.GRANT,
            "Free: created, given up, or lost by an owner that returned or did not return in time.",
        ),
    ),
)


class LagStep(Enum):
    """The effect of a check on the count of a member."""

    COUNT = "one more check in which the member is overloaded"
    HOLD = "no change"
    RESET = "the member is not overloaded"


LAG_STEPS: Final = DecisionTable(
    facts={
        "matters": "the member's lag is at least the minimum that counts",
        "over": "the lag is above the upper multiple of the mean",
        "calm": "the lag is not above the lower multiple of the mean",
    },
    rows=(
        Row(
            ("not matters",),
            LagStep.RESET,
            "If almost nothing lags, the mean is near zero, and any small lag is a multiple of it.",
        ),
        Row(("over",), LagStep.COUNT, "Several checks in a row must agree before resources move."),
        Row(
            ("calm",),
            LagStep.RESET,
            "The member has caught up, or the others now have the same lag.",
        ),
        Row(
            (),
            LagStep.HOLD,
            "A lag that varies around the upper multiple does not reset the count at each check "
            "below it.",
        ),
    ),
)
