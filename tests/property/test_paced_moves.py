"""Paced moves and losses under a leader that changes all the time: neither counts as the other."""

from hypothesis import example, given
from hypothesis import strategies as st

from coopgroup.policies import IncrementalPolicy
from tests.support.policy_drill import Drill, steady

DELAY_MS = 1_000
PAUSE_MS = 100
ROUND_MS = 10
PARTITIONS = range(12)

STEPS = st.lists(
    st.tuples(st.sampled_from(("die", "join", "nothing", "nothing")), st.integers(0, 5)),
    min_size=4,
    max_size=16,
)


def _drill(ration: int) -> Drill:
    policy = IncrementalPolicy(
        max_moves_per_round=ration,
        move_interval_ms=PAUSE_MS,
        scheduled_rebalance_timeout_ms=DELAY_MS,
    )
    drill = Drill(policy=policy, existing={"T": PARTITIONS})
    drill.settle(A=range(4), B=range(4, 8), C=range(8, 12))
    return drill


def _successor(drill: Drill, which: int) -> str:
    names = sorted(drill.actors)
    others = [name for name in names if name != drill.leader] or names
    return others[which % len(others)]


def _due_ms(drill: Drill, now_ms: int) -> int:
    """Return the time of the next rejoin; without one, that of an event 150 ms later."""
    timers = [actor.rejoins_at_ms for actor in drill.actors.values()]
    return max(min((time for time in timers if time is not None), default=now_ms + 150), now_ms)


def _play(drill: Drill, now_ms: int, which: int) -> int:
    """Play rounds, each under another leader, until no member rejoins; return the time."""
    while not steady(drill.round(now_ms, leader=_successor(drill, which))):
        now_ms += ROUND_MS
    return now_ms


@given(ration=st.integers(1, 3), steps=STEPS)
@example(ration=1, steps=[("join", 0), ("nothing", 1), ("die", 0), ("nothing", 0)])
def test_loss_under_paced_moves_and_changing_leaders_waits_and_is_resolved(
    ration: int, steps: list[tuple[str, int]]
) -> None:
    """At most for the delay and the rounds around it.

    New members have a static id, so none of them counts as a departed member. Moves whose pause
    ends at the same time as the delay come first, which takes two rounds.
    """
    drill = _drill(ration)
    idle_since_ms: dict[int, int] = {}
    now_ms = 0
    for number, (event, which) in enumerate(steps):
        names = sorted(drill.actors)
        if event == "die" and len(names) > 1:
            drill.leave(names[which % len(names)])
        elif event == "join":
            drill.join(f"n{number:02d}", instance_id=f"pod-{number}")
        now_ms = _play(drill, now_ms, which)
        owned = {index for indices in drill.owned().values() for index in indices}
        idle_since_ms = {
            index: idle_since_ms.get(index, now_ms) for index in PARTITIONS if index not in owned
        }
        idle_ms = [now_ms - since_ms for since_ms in idle_since_ms.values()]
        assert max(idle_ms, default=0) <= DELAY_MS + 4 * ROUND_MS
        now_ms = _due_ms(drill, now_ms)


@given(
    ration=st.integers(1, 3),
    before=st.integers(0, 6),
    which=st.lists(st.integers(0, 5), min_size=1, max_size=6),
)
def test_loss_in_a_paced_scale_up_is_kept_for_the_whole_delay_whoever_leads(
    ration: int, before: int, which: list[int]
) -> None:
    """The bug: the leader died during paced moves, and its partitions moved immediately.

    From then on the leader changes in each round. No member gets the lost partitions before the
    delay has passed, though pauses between moves end all the time.
    """
    drill = _drill(ration)
    drill.join("D", instance_id="pod-D")
    now_ms = 0
    while not drill.owned()["D"] or before:
        drill.round(now_ms)
        before -= bool(drill.owned()["D"] and before)
        now_ms += drill.timeout_ms or ROUND_MS
    lost = drill.actors[drill.leader].owned
    drill.leave(drill.leader)
    began_ms = now_ms
    for turn in which:
        now_ms = _play(drill, now_ms, turn)
        if now_ms >= began_ms + DELAY_MS:
            break
        owned = {index for indices in drill.owned().values() for index in indices}
        assert not owned & set(lost.indices("T").tolist())
        now_ms = _due_ms(drill, now_ms)
