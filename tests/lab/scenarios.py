"""The scenarios of the headline benchmark, played with a group of four members.

Each scenario begins and ends with the members m1 to m4 at rest. Some work uses processor time but
is not part of the scenario: starting interpreters, desynchronising heartbeats, restoring the four
members. This work happens outside its window. A window ends when the group is at rest again, or
after `SETTLE_S_MAX`, because a longer wait would add no unavailable time. A scenario with several
steps yields after each step. Retained partitions are counted per step, all other facts over the
whole scenario.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from tests.lab.analysis import Facts, TrialLog, Window, measure
from tests.lab.controller import Trial
from tests.lab.group import Group

MEMBERS: Final = ("m1", "m2", "m3", "m4")
JOINERS: Final = ("m5", "m6", "m7", "m8")
QUIET_S: Final = 8.0
BOUNCE_DOWN_S: Final = 2.0
REST_HEARTBEATS: Final = 2.5  # so many heartbeat intervals without a callback
PHASE_S: Final = (0.0, 1.0)


@frozen(kw_only=True)
class Scenario:
    """An event that happens to a group of four.

    Attributes:
        prepared: members with a (next) process that is prepared before the window.
        play: executes the event, and yields after each step whether the group came to rest.
    """

    title: str
    prepared: tuple[str, ...]
    play: Callable[[Group], Iterator[bool]]


@frozen(kw_only=True)
class Outcome:
    """The result of a scenario for one kind of consumer."""

    facts: Facts
    window_s: float
    is_settled: bool


def play_scenarios(
    trial: Trial,
    kind: str,
    names: Sequence[str],
    *,
    session_timeout_ms: int = 6_000,
    heartbeat_interval_ms: int = 1_000,
) -> dict[str, Outcome]:
    """Play scenarios with a group of `kind`, one after the other; the trial is then finished."""
    group = trial.group(
        kind,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
    )
    group.start(*MEMBERS)
    steps_of: dict[str, list[tuple[Window, bool]]] = {}
    for name in names:
        scenario = SCENARIOS[name]
        _restore(group)
        group.prepare(*scenario.prepared)
        group.desynchronise()
        group.wait_settled(quiet_s=1.0)
        time.sleep(group.chance.uniform(*PHASE_S))
        steps_of[name] = _play(scenario, group)
    trial.finish()
    log = group.log()
    return {name: _outcome(log, steps) for name, steps in steps_of.items()}


def measure_steps(log: TrialLog, steps: Sequence[Window]) -> Facts:
    """Return facts about consecutive steps.

    A rolling bounce replaces every process, so no partition is retained over the whole bounce.
    Partitions that a step does not touch are retained in that step.

    Returns:
        Facts of the whole, but `retained` is the minimum and `retained_pause_ms_max` the maximum of
        the single steps.
    """
    whole = Window(begin_ns=steps[0].begin_ns, end_ns=steps[-1].end_ns)
    by_step = [measure(log, step) for step in steps]
    return evolve(
        measure(log, whole),
        retained=min(facts.retained for facts in by_step),
        retained_pause_ms_max=max(facts.retained_pause_ms_max for facts in by_step),
    )


def _play(scenario: Scenario, group: Group) -> list[tuple[Window, bool]]:
    steps = []
    begin_ns = time.monotonic_ns()
    for is_settled in scenario.play(group):
        end_ns = time.monotonic_ns()
        steps.append((Window(begin_ns=begin_ns, end_ns=end_ns), is_settled))
        begin_ns = end_ns
    return steps


def _outcome(log: TrialLog, steps: Sequence[tuple[Window, bool]]) -> Outcome:
    windows = [window for window, _ in steps]
    return Outcome(
        facts=measure_steps(log, windows),
        window_s=round(sum(window.length_s for window in windows), 1),
        is_settled=all(is_settled for _, is_settled in steps),
    )


def _restore(group: Group) -> None:
    # Let extra members leave permanently if their kind can; otherwise their kept membership would
    # wait for them.
    group.retire(*(name for name in group.living if name not in MEMBERS))
    group.start(*(name for name in MEMBERS if name not in group.living))
    _rest(group)


def _rest(group: Group) -> bool:
    interval_s = group.settings["heartbeat_interval_ms"] / 1000
    return group.wait_settled(quiet_s=REST_HEARTBEATS * interval_s)


def _quiet(group: Group) -> Iterator[bool]:
    time.sleep(QUIET_S)
    yield _rest(group)


def _join(group: Group) -> Iterator[bool]:
    group.start("m5")
    yield _rest(group)


def _leave(group: Group) -> Iterator[bool]:
    group.retire("m4")
    yield _rest(group)


def _close(group: Group) -> Iterator[bool]:
    group.stop("m4")
    yield _rest(group)


def _bounce(group: Group) -> Iterator[bool]:
    group.stop("m2")
    time.sleep(BOUNCE_DOWN_S)
    group.start("m2")
    yield _rest(group)


def _killed(down_s: float) -> Callable[[Group], Iterator[bool]]:
    def play(group: Group) -> Iterator[bool]:
        group.kill("m2")
        time.sleep(down_s)
        group.start("m2")
        yield _rest(group)

    return play


def _lost(group: Group) -> Iterator[bool]:
    group.kill("m4")
    yield _rest(group)


def _rolling(group: Group) -> Iterator[bool]:
    for name in MEMBERS:
        group.stop(name)
        time.sleep(BOUNCE_DOWN_S)
        group.start(name)
        yield _rest(group)  # an operator also waits for the replacement


def _scale(group: Group) -> Iterator[bool]:
    group.start(*JOINERS)
    yield _rest(group)
    group.retire(*JOINERS)
    yield _rest(group)


SCENARIOS: Final[Mapping[str, Scenario]] = {
    "quiet": Scenario(title="nothing happens (noise)", prepared=(), play=_quiet),
    "join": Scenario(title="a fifth member joins", prepared=("m5",), play=_join),
    "leave": Scenario(title="one of four leaves for good", prepared=(), play=_leave),
    "close": Scenario(title="one of four closes unannounced", prepared=(), play=_close),
    "bounce": Scenario(title="one bounces (2 s down)", prepared=("m2",), play=_bounce),
    "kill": Scenario(title="one is killed (back after 3 s)", prepared=("m2",), play=_killed(3.0)),
    "return": Scenario(
        title="one is killed and returns (2 s down)", prepared=("m2",), play=_killed(2.0)
    ),
    "killed": Scenario(title="one is killed for good", prepared=(), play=_lost),
    "rolling": Scenario(title="rolling bounce of all four", prepared=MEMBERS, play=_rolling),
    "scale": Scenario(title="scale 4 to 8 to 4", prepared=JOINERS, play=_scale),
}
"""Scenarios by name, in the order of play."""
