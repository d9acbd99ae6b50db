"""Decide a round with any assignor and policy.

A round is always answered. If anything cannot be read, looked up or decided, the answer is the
round that moves nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import attrs
from attrs import frozen

from coopgroup.core.leader import (
    NO_LAGS,
    RoundRequest,
    TopicMetadata,
    fallback_round,
    lead,
    lead_kafka_round,
)
from coopgroup.core.model import ResourceSet
from coopgroup.core.protocol.kafka_protocols import kafka_protocol
from coopgroup.core.session.balancing import watch_of

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader import Lags, RoundDecision
    from coopgroup.core.model.group_api import JoinedMember
    from coopgroup.core.policies.policy import Policy, RoundContext
    from coopgroup.core.protocol.kafka_protocols import KafkaProtocol
    from coopgroup.core.session.state import LagWatch


@frozen(kw_only=True)
class DecideRound:
    """Effect: decide a round, off the loop. It is the member's effect with a leader's memory.

    Attributes:
        number: distinct number, which `lead_round` passes to `RoundDecided`. A generation can have
            two rounds: a coordinator that takes over from an older log counts on from there.
        generation: generation of the round.
        members: all members with encoded subscriptions; `read_members` decodes them and returns the
            topics to look up.
        context: circumstances of the round. In a protocol of Kafka's own clients the round follows
            that protocol, whatever assignor and policy are.
    """

    generation: int
    members: tuple[JoinedMember, ...]
    context: RoundContext
    number: int = 0


@frozen(kw_only=True)
class RoundDecided:
    """Event: a round that this member leads is decided.

    Attributes:
        generation: generation of the round.
        decision: the round, ready to be sent.
        number: number of the `DecideRound`.
        watch: memory for lag checks, or None.
    """

    generation: int
    decision: RoundDecision
    number: int = 0
    watch: LagWatch | None = None


@frozen(kw_only=True)
class RebalanceLags:
    """A leader's lags of one moment, for all rounds of a rebalance.

    Lags change from second to second. With other lags in each round, a rebalance could change its
    target forever.

    Attributes:
        lags: lags of the last look-up; None without one.
        goes_on_in: generation of the next round of the rebalance; None if it is over.
    """

    lags: Lags | None = None
    goes_on_in: int | None = None

    def known(self, duty: DecideRound, resources: ResourceSet) -> Lags | None:
        """Return the lags for a round; None to look them up.

        Look them up if the rebalance is over, if another member led the last round, or if there are
        new resources.
        """
        if duty.generation != self.goes_on_in or self.lags is None:
            return None
        return self.lags if resources <= self.lags.resources else None

    def after(self, outcome: RoundDecided, lags: Lags | None) -> RebalanceLags:
        """Return the memory after a round.

        A pause between rationed moves belongs to the rebalance. A wait for a lost owner does not:
        its partitions have fallen behind when it ends.

        Args:
            outcome: the decided round.
            lags: lags of the last look-up, or None.
        """
        plan = outcome.decision.plan
        goes_on = plan.follow_up or plan.rejoin_in_ms != plan.loss_ends_in_ms
        return RebalanceLags(lags=lags, goes_on_in=outcome.generation + 1 if goes_on else None)


def lead_round(
    duty: DecideRound,
    request: RoundRequest | None,
    metadata: TopicMetadata | None,
    lags: Lags | None,
    *,
    assignor: Assignor,
    policy: Policy,
    failure: str = "the metadata could not be looked up",
) -> RoundDecided:
    """Decide a round with any assignor and policy. Pure, and as slow as the assignor.

    Args:
        duty: the effect.
        request: its members, decoded by `read_members`; None if that failed, or took too long.
            Nothing is decoded again. The round then sends empty assignments, and members keep their
            resources. In a protocol of Kafka's own clients it repeats the last assignments.
        metadata: existing resources of the subscribed names; None if unknown. The round then moves
            nothing.
        lags: lags for assignors that need them, or None.
        assignor: decides where.
        policy: decides when.
        failure: why there is no metadata, or no request, for the record.
    """
    context = attrs.evolve(duty.context, lags=lags)
    foreign = kafka_protocol(context.protocol)
    if foreign is not None:
        decision = _led_as_kafka(duty, request, foreign, metadata, failure)
        return RoundDecided(generation=duty.generation, decision=decision, number=duty.number)
    if request is not None and metadata is not None:
        try:
            decision = lead(
                request,
                metadata,
                NO_LAGS if lags is None else lags,
                assignor=assignor,
                policy=policy,
                context=context,
            )
            watch = watch_of(decision, context, assignor, policy)
            return RoundDecided(
                generation=duty.generation, decision=decision, number=duty.number, watch=watch
            )
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            failure = one_line(error)
    decision = _refused(duty, request, metadata, _named(assignor), _named(policy), failure)
    return RoundDecided(generation=duty.generation, decision=decision, number=duty.number)


def _led_as_kafka(
    duty: DecideRound,
    request: RoundRequest | None,
    protocol: KafkaProtocol,
    metadata: TopicMetadata | None,
    failure: str,
) -> RoundDecision:
    try:
        return lead_kafka_round(
            duty.members, request, protocol, metadata, context=duty.context, failure=failure
        )
    except Exception as error:  # noqa: BLE001 -- a memory that is none, say
        forgetful = attrs.evolve(duty.context, state=None)
        return lead_kafka_round(
            duty.members, request, protocol, metadata, context=forgetful, failure=one_line(error)
        )


def one_line(error: BaseException) -> str:
    """Return an exception as one line for a record."""
    try:
        said = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 -- an exception of a user may fail to say what it is
        said = "…"
    return f"{type(error).__name__}: {said}"


def _refused(
    duty: DecideRound,
    request: RoundRequest | None,
    metadata: TopicMetadata | None,
    assignor: _Named,
    policy: _Named,
    reason: str,
) -> RoundDecision:
    """Return the round that moves nothing, from the usable part of the input."""
    nobody = RoundRequest(claims=(), topics=())
    nothing = TopicMetadata(resources=ResourceSet())
    forgetful = attrs.evolve(duty.context, state=None)

    def answer(
        request: RoundRequest, metadata: TopicMetadata | None, context: RoundContext
    ) -> RoundDecision:
        return fallback_round(
            request,
            metadata,
            assignor=cast("Assignor", assignor),
            policy=cast("Policy", policy),
            context=context,
            reason=reason,
        )

    if request is not None:
        for known, context in ((metadata, duty.context), (None, forgetful)):
            try:
                return answer(request, known, context)
            except Exception:  # noqa: BLE001, S112 -- a memory that is none, say
                continue
    return answer(nobody, nothing, forgetful)


@frozen(kw_only=True)
class _Named:
    """Replaces a plugin that may lack its name. A refused round must not cancel its warm-ups."""

    name: str
    warmup: object


def _named(plugin: object) -> _Named:
    name = _attribute(plugin, "name")
    name = name if isinstance(name, str) else type(plugin).__name__
    return _Named(name=name, warmup=_attribute(plugin, "warmup"))


def _attribute(plugin: object, name: str) -> object:
    try:
        return getattr(plugin, name, None)
    except Exception:  # noqa: BLE001 -- a property of a user
        return None
