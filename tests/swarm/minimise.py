"""`minimise`: make a failing run of the swarm as small as possible.

Every attempt is smaller than the last failing run, so the search ends. First acts are removed, many
together and then singly. Then faults are removed, then numbers shrink. All steps repeat until the
run stays the same. The caller defines a failure, usually as an objection of the same checker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import define

from coopgroup.simulator.scenario import Choice, Identity
from tests.swarm.runs import Act, ActKind, Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.swarm.runs import SwarmRun

_NO_FAULTS: Final = Faults()
_NUMBERS: Final = ("after_ms", "for_ms", "skew_ppm", "times")


def minimise(
    run: SwarmRun, fails: Callable[[SwarmRun], bool], *, tries_max: int = 2_000
) -> SwarmRun:
    """Return a smaller run that still fails.

    Returns:
        A failing run. No single part can be removed, unless the tries ran out.
    """
    search = _Search(run, fails, tries_max)
    while True:
        before = search.run
        search.drop_acts()
        search.follow(_with_fewer_faults)
        search.follow(_with_smaller_numbers)
        if search.run == before or search.tries <= 0:
            return search.run


@define
class _Search:
    """The smallest run so far.

    Attributes:
        run: the smallest failing run.
        fails: returns whether another run fails.
        tries: number of tries left.
    """

    run: SwarmRun
    fails: Callable[[SwarmRun], bool]
    tries: int

    def take(self, smaller: SwarmRun) -> bool:
        """Keep a smaller run if it fails, too."""
        if self.tries <= 0:
            return False
        self.tries -= 1
        found = self.fails(smaller)
        if found:
            self.run = smaller
        return found

    def drop_acts(self) -> None:
        """Remove halves of the acts, then quarters and so on.

        The later acts happen earlier then, or keep their times if the run fails only so.
        """
        size = len(self.run.acts)
        while size >= 1:
            place = 0
            while place < len(self.run.acts):
                acts = self.run.acts
                dropped, rest = acts[place : place + size], acts[place + size :]
                passed_ms = sum(act.after_ms for act in dropped)
                ways = [rest]
                if rest and passed_ms:
                    first = attrs.evolve(rest[0], after_ms=rest[0].after_ms + passed_ms)
                    ways.append((first, *rest[1:]))
                if not any(self.take(self._with(acts[:place], after)) for after in ways):
                    place += size
            size //= 2

    def follow(self, ways: Callable[[SwarmRun], Iterator[SwarmRun]]) -> None:
        """Keep taking smaller runs until no smaller run fails."""
        while any(self.take(smaller) for smaller in ways(self.run)):
            pass

    def _with(self, before: tuple[Act, ...], after: tuple[Act, ...]) -> SwarmRun:
        return attrs.evolve(self.run, acts=(*before, *after))


def _with_fewer_faults(run: SwarmRun) -> Iterator[SwarmRun]:
    for field in attrs.fields(Faults):
        calm = getattr(_NO_FAULTS, field.name)
        if getattr(run.faults, field.name) != calm:
            yield attrs.evolve(run, faults=attrs.evolve(run.faults, **{field.name: calm}))
    if run.policy.name != "simple":
        yield attrs.evolve(run, policy=Choice(name="simple"))
    for option, value in sorted(run.policy.options.items()):
        if option in {"scheduled_rebalance_timeout_ms", "initial_delay_ms"} and value:
            options = {**run.policy.options, option: 0}
            yield attrs.evolve(run, policy=Choice(name=run.policy.name, options=options))
    if run.assignor != "sticky":
        yield attrs.evolve(run, assignor="sticky")


def _with_smaller_numbers(run: SwarmRun) -> Iterator[SwarmRun]:
    if run.healed_after_ms:
        yield attrs.evolve(run, healed_after_ms=run.healed_after_ms // 2)
    for place, act in enumerate(run.acts):
        for smaller in _smaller_acts(act):
            yield attrs.evolve(run, acts=(*run.acts[:place], smaller, *run.acts[place + 1 :]))


def _smaller_acts(act: Act) -> Iterator[Act]:
    if act.identity is not Identity.NONE:
        yield attrs.evolve(act, identity=Identity.NONE)
    if len(act.topics) > 1:
        yield attrs.evolve(act, topics=act.topics[:1])
    if act.kind is ActKind.RESIZE and act.number > 1:
        yield attrs.evolve(act, number=act.number - 1)
    for name in _NUMBERS:
        value = getattr(act, name)
        least = 1 if name == "times" else 0
        if value == least:
            continue
        if name != "for_ms":  # 0 has a special meaning for this field
            yield _changed(act, name, least)
        if abs(value) > least + 1:
            yield _changed(act, name, int(value / 2))


def _changed(act: Act, name: str, value: int) -> Act:
    changes: dict[str, Any] = {name: value}
    return attrs.evolve(act, **changes)
