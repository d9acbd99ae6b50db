"""Deliberate bugs in the core that the swarm must find.

Each bug changes one line of one function, as a tired developer might. `broken` changes the running
process and restores it. The function object stays the same, so every module that imported it runs
the changed code.
"""

import ast
import contextlib
import importlib
import inspect
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from attrs import frozen

_BESIDES: Final = ("simulator.", "kafka.", "aio.", "processing.")


@frozen
class Mutant:
    """One bug.

    Attributes:
        name: its effect, in a few words.
        place: module of the core, or in another package of `_BESIDES`, and function in it,
            `module:function`.
        old: the original code, which occurs once.
    """

    name: str
    place: str
    old: str
    new: str

    @property
    def code(self) -> types.CodeType:
        """Return the compiled function with the bug."""
        return _compiled(self.place, self.old, self.new)


# fmt: off
MUTANTS: Final = (
    # --- what a member makes of answers, errors and time
    Mutant("a fenced heartbeat is swallowed", "member.refusals:act_on_error",
           "case Action.LOSE | Action.LOSE_ID:",
           "case Action.LOSE | Action.LOSE_ID if kind is not RequestKind.HEARTBEAT:"),
    Mutant("the lease counts from the answer", "member.turn:Turn.session_until_ms",
           "return proof_ms +", "return self.now_ms +"),
    Mutant("no lease at all", "member.member:lease_is_over",
           "return bool(member.owned) and now_ms >= member.lost_at_ms", "return False"),
    Mutant("the lease does not end with the time to rejoin", "member.member:Member.hold_until_ms",
           "min(self.lost_at_ms, self.lease.settled_at_ms + self.config.rebalance_timeout_ms)",
           "self.lease.until_ms"),
    Mutant("a join on its way counts as arrived", "member.member:Member.hold_until_ms",
           "min(self.lost_at_ms, self.lease.settled_at_ms + self.config.rebalance_timeout_ms)",
           "self.lost_at_ms"),
    Mutant("any heartbeat proves peace", "member.answers:_proves_peace",
           "if sent.generation == member.claim_generation:", "if True:"),
    Mutant("peace counts from the answer", "member.answers:_proves_peace",
           "settled_at_ms=sent_at_ms", "settled_at_ms=turn.now_ms"),
    Mutant("a heartbeat's word of a round is ignored", "member.refusals:_heartbeat_needs_nothing",
           "if member.state in _QUIET:", "if False:"),
    Mutant("the follow-up is forgotten", "member.answers:_settle",
           "elif assignment.revoked is None:", "elif True:"),
    Mutant("a member that waits for nothing does not follow up", "member.answers:_settle",
           "elif assignment.revoked is None:", "elif not assignment.revoked:"),
    Mutant("revoked resources are given up at once", "member.answers:_take_assignment",
           "owned=owned | assignment.assigned,", "owned=assignment.assigned,"),
    Mutant("granted resources are not held on to", "member.answers:_take_assignment",
           "owned=owned | assignment.assigned,", "owned=owned,"),
    Mutant("retained resources are started again", "member.answers:_take_assignment",
           "gained = assignment.assigned - owned", "gained = assignment.assigned"),
    Mutant("all is stopped when anything is", "member.answers:_take_assignment",
           "stopping = owned - assignment.assigned - before.pending - before.stopped",
           "stopping = owned if owned - assignment.assigned else owned - owned"),
    Mutant("what need not be stopped is stopped", "member.answers:_take_assignment",
           "stopping = owned - assignment.assigned - before.pending - before.stopped",
           "stopping = owned - before.pending - before.stopped"),
    Mutant("nothing is ever stopped", "member.answers:_take_assignment",
           "stopping = owned - assignment.assigned - before.pending - before.stopped",
           "stopping = owned - owned"),
    Mutant("the announced delay is not waited for", "member.parts:Delay.after",
           "if assignment.rejoin_in_ms is not None:", "if False:"),
    Mutant("a failed sync drops what is held", "member.refusals:_try_again",
           "turn.rejoin(cause)", "turn.lose(cause, keep_id=True)"),
    Mutant("a lost sync is not tried again", "member.refusals:_try_again",
           "if kind in {RequestKind.JOIN_GROUP, RequestKind.SYNC_GROUP}:",
           "if kind is RequestKind.JOIN_GROUP:"),
    Mutant("a coordinator that moved is not looked up", "member.refusals:_try_again",
           "turn.set(coordinator=None)", "pass"),
    Mutant("commits never leave the round behind", "member.answers:_synced",
           "await_sync=False", "await_sync=True"),
    Mutant("a commit of what came back overwrites", "member.answers:_take_assignment",
           "turn.finish_commits(lapsed)", "commits = member.commits"),
    Mutant("an id that was given is not taken", "member.answers:_take_answer",
           "turn.set(member_id=answer.member_id, lease=fresh)", "pass"),
    Mutant("the application does not hear of a grant", "member.answers:_take_assignment",
           "    if gained:", "    if gained and stopping:"),
    Mutant("heartbeats come too late", "member.requests:_heartbeat_request",
           "turn.set(heartbeat_at_ms=turn.now_ms + member.heartbeat_pace_ms(turn.now_ms))",
           "turn.set(heartbeat_at_ms=turn.now_ms + member.config.session_timeout_ms)"),
    # --- how a member loses, gives up, joins and commits
    Mutant("the loss is not told", "member.turn:Turn.lose",
           "if waits:", "if stalled:"),
    Mutant("claims outlive the loss", "member.turn:Turn._drop_membership",
           "            owned=EMPTY,\n", ""),
    Mutant("a member that is unknown keeps its id", "member.turn:Turn._drop_membership",
           'member_id=self.member.member_id if keep_id else "",',
           "member_id=self.member.member_id,"),
    Mutant("joins before the loss is handled", "member.turn:Turn.lose",
           "self.move(Trigger.LOST if waits else Trigger.LOST_NOTHING, cause)",
           "self.move(Trigger.LOST, cause)\n        self.move(Trigger.LOSS_HANDLED, cause)"),
    Mutant("rejoins without its claims", "member.protocols:_subscription",
           "owned=member.owned,", "owned=member.owned - member.owned,"),
    Mutant("claims in the name of no generation", "member.protocols:_subscription",
           "generation=member.claim_generation if protocol is None else member.generation,",
           "generation=-1,"),
    Mutant("commits under an old generation", "member.requests:_commit_request",
           "generation=turn.member.generation,", "generation=turn.member.generation - 1,"),
    Mutant("the oldest offset wins", "member.commits:_newest",
           "for each in commits.queue for", "for each in reversed(list(commits.queue)) for"),
    Mutant("the deadline of a commit never comes", "member.commits:time_out",
           "if now_ms < due_at_ms:", "if True:"),
    Mutant("gives up before the commits have ended", "member.revocation:give_up_committed",
           "stopped - ResourceSet.from_pairs(awaited_of(member.commits))",
           "stopped"),
    Mutant("never gives up what has stopped", "member.revocation:give_up_committed",
           "owned=member.owned - given_up,", "owned=member.owned,"),
    Mutant("no heartbeats while a join waits", "member.requests:wanted",
           "if member.in_generation and RequestKind.HEARTBEAT not in waiting:",
           "if member.in_generation and not waiting:"),
    Mutant("the delay is over and nobody rejoins", "member.machine:_meet_deadlines",
           "due = member.delay.rejoin_in_ms(turn.now_ms) == 0", "due = False"),
    Mutant("does not tell how long a loss still waits", "member.parts:Delay.loss_ends_in_ms",
           "if self.loss_until_ms is None:", "if True:"),
    # --- what a leader makes of claims
    Mutant("the last member's claim wins", "model.claims:_rightful_owners",
           "winning = claimed_in == newest[positions]",
           "winning = np.diff(positions, append=-1) != 0"),
    Mutant("the generation check is dropped", "model.claims:_rightful_owners",
           "contested = winners > 1", "contested = winners > 2"),
    Mutant("the claim that comes last counts as newest", "model.claims:_rightful_owners",
           "np.maximum.at(newest, positions, claimed_in)",
           "np.maximum.at(newest, positions, -1); newest[positions] = claimed_in"),
    Mutant("unreadable claims are none", "policies.facts:_unheard_members",
           "return tuple(member for member in _unreadable_members(group) if member not in told)",
           "return ()"),
    Mutant("everybody is a leader that remembers", "session.stepping:_without_memory",
           "policy_state=None,\n        led_generation=None,\n        asked_for_ms=None,", ""),
    Mutant("hearsay is believed", "leader.decision:_without_hearsay",
           "if state is None or context.generation > state.generation:", "if True:"),
    Mutant("the leader answers one member only", "leader.answer:_encoded",
           "zip(member_ids, messages, strict=True)", "zip(member_ids[:1], messages)"),
    Mutant("nobody hears of the follow-up", "leader.answer:member_assignments",
           "if plan.follow_up:", "if False:"),
    Mutant("no time-out is ever announced", "leader.answer:member_assignments",
           "rejoin_in_ms=plan.rejoin_in_ms,", "rejoin_in_ms=None,"),
    Mutant("time-outs announced ten times too long", "leader.answer:member_assignments",
           "rejoin_in_ms=plan.rejoin_in_ms,",
           "rejoin_in_ms=10 * plan.rejoin_in_ms if plan.rejoin_in_ms else None,"),
    # --- when a policy lets things move
    Mutant("granted before it is released", "policies.stage:_plan",
           "granted = actions.are(ResourceAction.GRANT)",
           "granted = ~kept & (target >= 0)"),
    Mutant("what its owner may keep is taken", "policies.stage:stage_round",
           "turn=moves.chosen | leaving,", "turn=np.ones_like(keeps),"),
    Mutant("what was lost is given away at once", "policies.losses:_of_state",
           "deadlines = np.full(len(members.ids) + 1, now_ms + delay_ms)",
           "deadlines = np.full(len(members.ids) + 1, now_ms)"),
    Mutant("losses wait twice as long", "policies.losses:_of_state",
           "deadlines = np.full(len(members.ids) + 1, now_ms + delay_ms)",
           "deadlines = np.full(len(members.ids) + 1, now_ms + 2 * delay_ms)"),
    Mutant("every round restarts the delay", "policies.losses:remembered_losses",
           "given_ms=None if key % 2 else now_ms)",
           "given_ms=None if key % 2 else now_ms, "
           "deadline_ms=losses[key // 2].deadline_ms + 150)"),
    Mutant("each round adds to the wait for an unknown owner",
           "policies.losses:remembered_losses",
           "given_ms=None if key % 2 else now_ms)",
           "given_ms=None if key % 2 else now_ms, deadline_ms="
           "losses[key // 2].deadline_ms + 400 * (losses[key // 2].owner is None))"),
    Mutant("losses wait for ever", "policies.losses:_decide",
           "expired=context.now_ms >= cases.losses[position].deadline_ms,", "expired=False,"),
    Mutant("losses expire at once", "policies.losses:_decide",
           "expired=context.now_ms >= cases.losses[position].deadline_ms,", "expired=True,"),
    Mutant("a static id is ignored", "policies.losses:_present_owner",
           "(loss.instance_id, by_instance)", "(loss.owner, by_instance)"),
    Mutant("newcomers are never taken for who is gone", "policies.losses:_decide",
           "newcomer=position in candidates,", "newcomer=False,"),
    Mutant("one newcomer gets every loss", "policies.losses:NewcomerQueue.take",
           "self.taken.add(member)", "pass"),
    Mutant("a missed sync is a departure", "policies.losses:_of_state",
           "departed = np.where(holder == NOBODY, then, NOBODY)", "departed = then.copy()"),
    Mutant("a new leader restarts the delay", "policies.losses:_loss_of_unknown",
           "context.now_ms + min([*remaining, delay_ms])", "context.now_ms + delay_ms"),
    Mutant("the ration is ignored", "policies.stage:_rationed",
           "if ration is None:", "if True:"),
    Mutant("a ration of one too many", "policies.moves:first_moves",
           "order[:count_max]", "order[: count_max + 1]"),
    Mutant("the interval between moves is ignored", "policies.stage:_moves_due_ms",
           "return min(due_ms, now_ms + interval_ms)", "return None"),
    Mutant("an unreadable member ends the interval between moves",
           "policies.stage:stage_round",
           "moves_due_ms=moves.due_ms,",
           "moves_due_ms=moves.due_ms if all(m.readable for m in group.members) else None,"),
    Mutant("the moves that are left are forgotten", "policies.stage:stage_round",
           "moves.due_ms if moves.pending else None)", "None)"),
    Mutant("moves although a loss waits", "policies.stage:stage_round",
           "waits = outlook.losses.wait_until_ms is not None", "waits = False"),
    Mutant("a slow stop makes rounds without end", "policies.facts:claims_told",
           "recalled.pairs_of(PairKind.TOLD)", "recalled.pairs_of()"),
    Mutant("waits for what it gave away", "policies.facts:remember_round",
           "[~group.assignable, given_up & homeless, owned,",
           "[~group.assignable, given_up & ~given_up, owned,"),
    Mutant("contested resources are granted", "policies.stage:_plan",
           "granted = actions.are(ResourceAction.GRANT)",
           "granted = actions.are(ResourceAction.GRANT) | group.contested"),
    # --- what a host makes of a connection: the channel of the driver does the same
    Mutant("a commit is failed with its connection and arrives last",
           "simulator.world.network:Network._give_up",
           "continue  # the commit waits for its answer on the old connection",
           "self._tell_failed(call); continue"),
    # --- groups shared with other clients, parts that stop, coming back, forming
    Mutant("an eager protocol is offered with full hands", "member.protocols:_given_away",
           "if protocol.is_eager:",
           "if False:"),
    Mutant("a static member that was left out goes on", "member.answers:_was_left_out",
           "member.config.instance_id is not None",
           "member.config.instance_id is None"),
    Mutant("no join before all has stopped", "member.turn:Turn.rejoin_soon",
           "if config.eager or revocation.yields:",
           "if True:"),
    Mutant("one part that stops is taken for all", "member.revocation:note_stopped",
           "pending=before.pending - stopped",
           "pending=before.pending - before.pending"),
    Mutant("heartbeats wait behind the join", "member.requests:_lane",
           "return Lane.COMMIT if joins else Lane.JOIN",
           "return Lane.JOIN"),
    Mutant("an open round is believed for longer", "member.refusals:_heartbeat_needs_nothing",
           "round_open_at_ms=sent.sent_at_ms if joins else 0",
           "round_open_at_ms=turn.now_ms + 500 if joins else 0"),
    Mutant("slow stops are forgotten", "member.answers:_take_assignment",
           "before.with_more(",
           "attrs.evolve(before, pending=EMPTY).with_more("),
    Mutant("the lease lasts twice as long", "member.turn:Turn.session_until_ms",
           "self.member.config.session_timeout_ms",
           "2 * self.member.config.session_timeout_ms"),
    Mutant("a leader remembers nothing", "session.stepping:_translated",
           "state=session.policy_state,",
           "state=None,"),
    Mutant("eager members get back what moves", "policies.stage:_given_up",
           "np.isin(outlook.losses.restored_to, number_of[number_of != NOBODY])",
           "np.zeros(outlook.losses.restored_to.size, dtype=np.bool_)"),
    Mutant("moves that are under way are forgotten", "policies.stage:stage_round",
           "moves_pending=pending,",
           "moves_pending=False,"),
    Mutant("a refused member's commits wait for a sync", "member.revocation:make_way",
           "commits=replaced(member.commits, await_sync=False),",
           "commits=member.commits,"),
    Mutant("what is being stopped is not claimed", "member.requests:_join_request",
           "offered = offered_subscriptions(member, turn.now_ms)",
           "offered = offered_subscriptions(__import__('attrs').evolve(member, "
           "owned=member.owned - member.revocation.pending), turn.now_ms)"),
    Mutant("the first members wait for ever", "policies.stage:_initial_until_ms",
           "until_ms is not None and context.now_ms < until_ms else None",
           "until_ms is not None else None"),
    Mutant("a follower never syncs", "member.requests:wanted",
           "if kind is None or kind in waiting:",
           "if kind is None or kind in waiting or (kind.value == 'SyncGroup' and not "
           "member.round.leads):"),
    Mutant("what is being stopped is not lost", "member.turn:Turn.lose",
           "resources, loss = self.member.owned,",
           "resources, loss = self.member.owned - self.member.revocation.pending,"),
    Mutant("the initial delay begins anew", "policies.stage:_initial_until_ms",
           "until_ms = None if context.state is None else context.state.initial_until_ms",
           "until_ms = context.now_ms + initial_delay_ms if initial_delay_ms and not "
           "group.claim_members.size else None"),
    # --- rules of commits, memberships and leaders that the directed runs reach
    Mutant("a commit of what was given up is sent", "member.commits:take_batch",
           "_disowned(newest.keys(), owned)",
           "frozenset()"),
    Mutant("the next commit does not wait until the last is fenced", "member.requests:_timeout_ms",
           "return max(config.request_timeout_ms, fenced_ms)",
           "return config.request_timeout_ms"),
    Mutant("a join outlives the loss", "member.turn:Turn._drop_membership",
           "            RequestKind.JOIN_GROUP,\n", ""),
    Mutant("topics that were dropped are still claimed", "member.protocols:_given_away",
           "return member.owned - member.owned.restrict_names(member.next_join.topics)",
           "return EMPTY"),
    Mutant("claims carry the generation of a failed round", "member.protocols:_subscription",
           "generation=member.claim_generation if protocol is None else member.generation,",
           "generation=member.generation,"),
    Mutant("claims in Kafka's protocol are not read", "leader.kafka_rounds:_owned",
           "subscription.version >= _FIRST_WITH_GENERATION:\n"
           "            return _of_topics(subscription),",
           "subscription.version >= _FIRST_WITH_GENERATION:\n"
           "            return EMPTY,"),
    Mutant("a tie goes to the last claim", "model.claims:_rightful_owners",
           "owner[contested] = NOBODY", "pass"),
    Mutant("a new leader takes losses for new resources", "policies.facts:classify_unclaimed",
           "owned=_owned_by_claims(group) & (not context.after_broker)",
           "owned=np.zeros_like(free)"),
    Mutant("a share that was kept for long has its first deadline",
           "policies.losses:_of_state",
           "loss.given_ms is not None and now_ms - loss.given_ms >= delay_ms",
           "False"),
    Mutant("a round at rest moves all", "policies.stage:stage_round",
           "candidates &= recalled.remembered.planned", "pass"),
    Mutant("a static newcomer replaces a known owner",
           "policies.losses:NewcomerQueue.first_static_for",
           "if owner is not None:", "if False:"),
    Mutant("a deadline that only the leader knows is forgotten", "session.own_rounds:due_round",
           "now_ms >= due_ms:\n        asks = RejoinRequested(reason=Cause.POLICY",
           "False:\n        asks = RejoinRequested(reason=Cause.POLICY"),
)
# Bugs that need a rare run: few of the first 500 seeds, or none, find them.
RARE_MUTANTS: Final = (
    ("static_round_counted_twice",
     Mutant("a round counts though its coordinator was lost", "member.answers:_was_left_out",
            "member.claim_generation if member.lease.may_restart else member.generation",
            "member.generation")),
    ("refused_round_knows_nothing",
     Mutant("a refused round passes for knowledge", "leader.decision:_state_after_refusal",
            "if context.state is None:",
            "if context.state is None:\n        return fresh\n    if context.state is None:")),
    ("share_lost_as_two",
     Mutant("the share of a departed member is lost as two", "policies.losses:_parts_lost_again",
            "whole = part & granted[number] & beside[departed]",
            "whole = np.zeros_like(part)")),
    ("owner_back_after_the_wait",
     Mutant("the remainder of a released loss goes back to its owner",
            "policies.losses:_decide",
            "numbers_in(number).tolist() if not cases.losses[n].given_late]",
            "numbers_in(number).tolist()]")),
    ("static_holder_of_a_known_loss",
     Mutant("a known loss beats its static holder, who is back", "policies.losses:_of_state",
            "np.where(number != NOBODY, _returned(group, recalled, members)[then], holder)",
            "holder")),
    ("delay_heard_by_an_unreadable_member",
     Mutant("an unreadable member makes a new leader restart the delay",
            "policies.losses:_loss_of_unknown",
            "min([*remaining, delay_ms])",
            "min([*remaining, delay_ms] if all(m.readable for m in group.members) else "
            "[delay_ms])")),
    ("warm_up_over_a_round_without_metadata",
     Mutant("a round without metadata cancels warm-ups", "leader.rounds:_named",
            '_attribute(plugin, "warmup")',
            "None")),
    ("refused_when_all_is_stopped",
     Mutant("a refused join that offered less ends the membership", "member.revocation:make_way",
            "if offers_more(turn.member):",
            "if False:")),
    ("refused_while_a_commit_waits",
     Mutant("a refused member does not remember what it stops", "member.revocation:make_way",
            "before.with_more(stopping,",
            "before.with_more(ResourceSet(),")),
    ("refused_while_a_commit_waits",
     Mutant("joins without topics", "member.protocols:joins_in_vain",
            "return not member.next_join.topics and",
            "return False and")),
    ("refused_while_a_commit_waits",
     Mutant("a subscription that changed is not joined with", "member.machine:_subscribe",
            "turn.set(rejoin_reason=Cause.SUBSCRIPTION_CHANGED)",
            "pass")),
    ("back_in_a_cooperative_group",
     Mutant("who comes back in a cooperative group owes no round",
            "member.protocols:_may_owe_a_round",
            "and bool(assigned)",
            "and not assigned")),
    ("stalled_before_it_was_told",
     Mutant("a static member that stalled owes no round", "member.protocols:_may_owe_a_round",
            "and not member.owned",
            "and not (member.owned or member.last_assignment.resources)")),
    ("unreadable_twice",
     Mutant("unread claims are kept until told twice", "member.answers:_take_assignment",
            "yields = not stopping <= (assignment.revoked or EMPTY)",
            "yields = False")),
    ("joined_again_while_deciding",
     Mutant("a new leader believes that it saw everything", "policies.stage:stage_round",
            "blind = context.state is None or context.state.blind",
            "blind = False")),
    ("vanished_in_window",
     Mutant("what vanishes changes nothing", "policies.moves:_resources_changed",
            "return bool((place == ABSENT).any() or not group.assignable[place].all())",
            "return False")),
    ("static_other_topics",
     Mutant("a note of the topics is not heeded", "member.answers:_heed_digests",
            "noted != names_digest(turn.member.last_join.topics)",
            "noted == names_digest(())")),
    ("lease_over_rounds",
     Mutant("the lease of an owner does not count the end of a round", "member.answers:_joined",
            "until_ms=turn.session_until_ms(ended_ms)",
            "until_ms=0 if member.owned else turn.session_until_ms(ended_ms)")),
    ("static_round_ended_without_its_join",
     Mutant("a late join of a static member renews its lease", "member.answers:_may_have_come_late",
            "answer.leader_id != answer.member_id",
            "False")),
    ("lease_of_a_late_sync",
     Mutant("the sync of a follower renews its lease", "member.answers:_synced",
            "turn.session_until_ms(sent.sent_at_ms) if leads else lease.until_ms",
            "turn.session_until_ms(sent.sent_at_ms)")),
    ("lease_after_a_move",
     Mutant("heartbeats never fall back to the last stored generation",
            "member.refusals:_try_other_generation",
            "falls_back = sent.generation == member.generation",
            "falls_back = False")),
    ("repeated_join_renews_nothing",
     Mutant("an answer that is repeated counts as the end of a round", "member.answers:_joined",
            "if not (is_repeated or by_broker):",
            "if not by_broker:")),
    ("returned_after_a_long_round",
     Mutant("no heartbeat follows a join that waited for a session", "member.answers:_joined",
            "elif turn.member.lease.until_ms < turn.now_ms + member.config.heartbeat_interval_ms:",
            "elif False:")),
    ("part_of_a_leavers_bundle",
     Mutant("a member that hands over gets new parts", "policies.bundles:opened_plan",
            " & group.may_hold(wanted)", "")),
)
"""Each with the minimised run of `simulations/regressions` that must find it."""
# fmt: on


@contextlib.contextmanager
def broken(mutant: Mutant) -> Iterator[types.FunctionType]:
    """Install a bug temporarily; yield the changed function."""
    function = _function(mutant.place)
    sound = function.__code__
    function.__code__ = mutant.code
    try:
        yield function
    finally:
        function.__code__ = sound


def _function(place: str) -> types.FunctionType:
    module, _, path = place.partition(":")
    root = "coopgroup" if module.startswith(_BESIDES) else "coopgroup.core"
    found: Any = importlib.import_module(f"{root}.{module}")
    for name in path.split("."):
        found = inspect.getattr_static(found, name)
    for wrapper, inner in ((property, "fget"), (classmethod, "__func__")):
        if isinstance(found, wrapper):
            found = getattr(found, inner)
    assert isinstance(found, types.FunctionType), f"{place} is no function"
    return found


@cache
def _compiled(place: str, old: str, new: str) -> types.CodeType:
    """Compile the module with the change, and return the code of the function."""
    function = _function(place)
    path = inspect.getsourcefile(function)
    assert path is not None
    with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a source file of ours
        source = file.read()
    names = place.partition(":")[2].split(".")
    node: ast.AST = ast.parse(source)
    for name in names:
        node = next(n for n in ast.iter_child_nodes(node) if getattr(n, "name", "") == name)
    assert isinstance(node, ast.FunctionDef)
    lines = source.splitlines(keepends=True)
    first, last = node.lineno - 1, node.end_lineno
    text = "".join(lines[first:last])
    assert text.count(old) == 1, f"{place}: {old!r} stands there {text.count(old)} times"
    changed = "".join([*lines[:first], text.replace(old, new), *lines[last:]])
    code = compile(changed, path, "exec", dont_inherit=True)
    for name in names:
        code = next(c for c in code.co_consts if getattr(c, "co_name", "") == name)
    return code
