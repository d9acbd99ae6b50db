"""Decide a round with any assignor and policy, for a member that leads.

A round is always answered. If anything cannot be read, looked up or decided, the answer is the
round that moves nothing. Errors of assignors and policies are values in the decision (`lead`).
`lead_round` is the net for all other errors: it tries one answer after another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

import attrs
from attrs import frozen

from coopgroup.core.leader.answer import fallback_round, lead
from coopgroup.core.leader.kafka_rounds import lead_kafka_round
from coopgroup.core.leader.lag_checks import context_of, watch_of
from coopgroup.core.leader.request import RoundRequest
from coopgroup.core.model import ResourceSet
from coopgroup.core.model.lags import NO_LAGS
from coopgroup.core.model.metadata import TopicMetadata
from coopgroup.core.policies.warmth import warmup_of
from coopgroup.core.protocol.digests import resources_digest
from coopgroup.core.protocol.kafka_protocols import kafka_protocol
from coopgroup.core.session.deciding import DecisionMade
from coopgroup.errors import one_line

if TYPE_CHECKING:
    from coopgroup.core.assignors.base import Assignor
    from coopgroup.core.leader.decision import RoundDecision
    from coopgroup.core.model.lags import Lags
    from coopgroup.core.policies.policy import Policy, RoundContext
    from coopgroup.core.protocol.kafka_protocols import KafkaProtocol
    from coopgroup.core.session.deciding import DecideRound
    from coopgroup.core.session.own_rounds import LookOver
    from coopgroup.core.session.state import LagWatch


_Answer: TypeAlias = Callable[[str], DecisionMade]
"""Makes a round, given the reason if it moves nothing."""


def lead_round(
    duty: DecideRound,
    request: RoundRequest | None,
    metadata: TopicMetadata | None,
    lags: Lags | None,
    *,
    assignor: Assignor,
    policy: Policy,
    failure: str = "the metadata could not be looked up",
) -> DecisionMade:
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
    foreign = kafka_protocol(duty.context.protocol)
    if foreign is None:
        answers = _answers(duty, request, metadata, lags, assignor, policy)
    else:
        answers = _answers_as_kafka(duty, request, foreign, metadata)
    *others, last = answers
    for answer in others:
        try:
            return answer(failure)
        except Exception as error:  # noqa: BLE001 -- a round is always answered
            if metadata is not None and answer is answers[0]:  # later errors tell less
                failure = one_line(error)
    return last(failure)


def _answers_as_kafka(
    duty: DecideRound,
    request: RoundRequest | None,
    protocol: KafkaProtocol,
    metadata: TopicMetadata | None,
) -> list[_Answer]:
    """Return the answers to try: with the memory, and without it if it cannot be read."""
    known = context_of(duty.context)

    def decided(context: RoundContext, failure: str) -> DecisionMade:
        decision = lead_kafka_round(
            duty.members, request, protocol, metadata, context=context, failure=failure
        )
        return _outcome(duty, decision)

    return [partial(decided, one) for one in (known, attrs.evolve(known, state=None))]


def _answers(
    duty: DecideRound,
    request: RoundRequest | None,
    metadata: TopicMetadata | None,
    lags: Lags | None,
    assignor: Assignor,
    policy: Policy,
) -> list[_Answer]:
    """Return the answers to try: the decided round, then refused ones from less and less input."""
    remembering = context_of(duty.context)
    forgetful = attrs.evolve(remembering, state=None)
    fallback = partial(
        fallback_round,
        assignor=cast("Assignor", _named(assignor)),
        policy=cast("Policy", _named(policy)),
    )

    def decided(request: RoundRequest, metadata: TopicMetadata, _: str) -> DecisionMade:
        context = attrs.evolve(remembering, lags=lags)
        known = NO_LAGS if lags is None else lags
        decision = lead(request, metadata, known, assignor=assignor, policy=policy, context=context)
        return _outcome(duty, decision, watch_of(decision, context, assignor, policy))

    def refused(
        request: RoundRequest, metadata: TopicMetadata | None, context: RoundContext, reason: str
    ) -> DecisionMade:
        return _outcome(duty, fallback(request, metadata, context=context, reason=reason))

    answers: list[_Answer] = []
    if request is not None:
        if metadata is not None:
            answers.append(partial(decided, request, metadata))
        answers.append(partial(refused, request, metadata, remembering))
        answers.append(partial(refused, request, None, forgetful))
    nobody, nothing = RoundRequest(claims=(), topics=()), TopicMetadata(resources=ResourceSet())
    return [*answers, partial(refused, nobody, nothing, forgetful)]


def _outcome(
    duty: DecideRound, decision: RoundDecision, watch: LagWatch | None = None
) -> DecisionMade:
    return DecisionMade(
        generation=duty.generation, decision=decision, number=duty.number, watch=watch
    )


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


def needs_round(duty: LookOver, found: ResourceSet, request: RoundRequest, policy: Policy) -> bool:
    """Return whether a leader must start a round whose group an earlier process led.

    It must if the existing resources differ from those of the group's last round, or if
    warm-ups may run: only the earlier process knew when they time out.

    Args:
        duty: the effect.
        found: the existing resources.
        request: the members of the round.
        policy: policy of this member.
    """
    if not duty.has_digests:
        return False
    warms_up = any(claims.warm is not None for claims in request.claims)
    if warms_up and warmup_of(policy) is not None:
        return True
    return resources_digest(found) != duty.shared_digest
