"""Advice in words: the setting, the reasons, the certainty, and a configuration to paste."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from coopgroup.pipeline.advice import ENOUGH, waits_ms
from coopgroup.pipeline.advice_bootstrap import CONFIDENCE, Estimate
from coopgroup.pipeline.advice_cost import break_even_ms
from coopgroup.pipeline.advice_history import span_words
from coopgroup.pipeline.advice_warmups import warmup_code, warmup_in, warmup_words
from coopgroup.report.wording import counted, seconds

if TYPE_CHECKING:
    from coopgroup.pipeline.advice import Advice, Option
    from coopgroup.pipeline.advice_history import GroupHistory
    from coopgroup.simulator.scenario import Choice

__all__ = [
    "advice_json",
    "away_ms",
    "headline",
    "notes",
    "reasons",
    "setting_words",
    "snippet",
]

_CLASSES: Final = {
    "simple": "SimplePolicy",
    "deferred": "DeferredPolicy",
    "incremental": "IncrementalPolicy",
}


def away_ms(history: GroupHistory) -> list[float]:
    """Return the length of each absence, in ms, ascending; infinite if permanent."""
    return sorted(
        math.inf if one.absent_ms is None else float(one.absent_ms)
        for episode in history.episodes
        for one in episode.absences
    )


def headline(advice: Advice) -> str:
    """Return the advice in one line."""
    if advice.best == advice.today:
        return f"Keep {setting_words(advice.current.policy)}."
    words = setting_words(advice.advised.policy)
    return f"Use {words}." if advice.is_clear else f"Use {words}, if anything: it hardly matters."


def setting_words(policy: Choice) -> str:
    """Return the name of a setting within a sentence."""
    if policy.name == "simple":
        return f"the simple policy{warmup_words(policy)}, which does not wait for a lost member"
    if policy.name == "eager":
        return "eager rebalancing, which stops everything"
    words = f"the {policy.name} policy{warmup_words(policy)}"
    waits = waits_ms(policy)
    if waits:
        words += f", which waits {seconds(waits)} for a lost member"
    ration = policy.options.get("max_moves_per_round")
    if isinstance(ration, int):
        every_ms = policy.options.get("move_interval_ms", 0)
        every = seconds(every_ms) if isinstance(every_ms, int) else "0 s"
        words += f" and moves at most {counted(ration, 'partition')} every {every}"
    return words


def reasons(advice: Advice) -> tuple[str, ...]:
    """Return the reasons in a few sentences: absences, cost of a move, result, certainty."""
    sentences = [*_absence_words(advice.history), _price_words(advice), _choice_words(advice)]
    sentences += [one for one in (_ration_words(advice), _warmup_reason(advice)) if one]
    sentences.append(_sure_words(advice))
    return tuple(sentences)


def notes(advice: Advice) -> tuple[str, ...]:
    """Return remarks that the reader needs for the figures; warnings first."""
    history = advice.history
    found = []
    if not advice.is_enough:
        absences = sum(len(one.absences) for one in history.episodes)
        found.append(
            f"Too little history: {counted(absences, 'absence')} in {span_words(history.days)}, "
            f"and {ENOUGH} are needed to go by. Take the advice for a guess. Where nothing is "
            f"known, a time-out of what a move there and back costs, here "
            f"{seconds(break_even_ms(advice.cost))}, never costs more than twice what the best one "
            "would have."
        )
    if history.left_out:
        found.append(
            f"{counted(history.left_out, 'absence')} began shortly before the history ends, so "
            "nobody knows how long; left out."
        )
    if advice.failed:
        found.append(f"{counted(advice.failed, 'replay')} failed and count for nothing.")
    if advice.violations:
        found.append(
            f"{counted(advice.violations, 'invariant was', 'invariants were')} broken in replays: "
            "a bug of coopgroup, please report it."
        )
    return (*found, *history.notes)


def snippet(advice: Advice) -> str:
    """Return Python code to paste: the consumer with the advised policy."""
    policy = advice.advised.policy
    name = _CLASSES.get(policy.name, "SimplePolicy")
    warmup = warmup_in(policy)
    named = {key: value for key, value in sorted(policy.options.items()) if key != "warmup"}
    pairs = ", ".join(
        [
            *(f"{key}={value:_}" for key, value in named.items()),
            *([] if warmup is None else [f"warmup={warmup_code(warmup)}"]),
        ]
    )
    more = "" if warmup is None else "from coopgroup.policies import Warmup\n"
    return (
        f"from coopgroup import CooperativeConsumer, {name}\n{more}\n"
        "consumer = CooperativeConsumer(\n"
        f'    {{"bootstrap.servers": "...", "group.id": {_quoted(advice.history.group)}}},\n'
        f"    policy={name}({pairs}),\n"
        ")\n"
    )


def advice_json(advice: Advice) -> dict[str, Any]:
    """Return the whole advice as plain values."""
    history = advice.history
    return {
        "group": history.group,
        "history": {
            "days": round(history.days, 3),
            "members": history.members,
            "partitions": history.partitions,
            "episodes": len(history.episodes),
            "absences": sum(len(one.absences) for one in history.episodes),
            "is_enough": advice.is_enough,
            "observed": {
                "unavailable_partition_s_per_day": history.observed.unavailable_s,
                "moved_per_day": history.observed.moved,
                "lag_peak": history.observed.lag_peak,
            },
        },
        "cost": {"move_ms": advice.cost.move_ms, "return_ms": advice.cost.return_ms},
        "confidence": CONFIDENCE,
        "today": _option_json(advice.current),
        "advised": _option_json(advice.advised),
        "saving_partition_s_per_day": _estimate_json(advice.saving_s),
        "is_clear": advice.is_clear,
        "near_best": advice.near_best,
        "options": [_option_json(one) for one in advice.options],
        "headline": headline(advice),
        "reasons": list(reasons(advice)),
        "notes": list(notes(advice)),
        "snippet": snippet(advice),
    }


def _option_json(option: Option) -> dict[str, Any]:
    return {
        "policy": option.policy.name,
        "options": dict(option.policy.options),
        "unavailable_partition_s_per_day": _estimate_json(option.unavailable_s),
        "moved_per_day": _estimate_json(option.moved),
        "lag_peak": _estimate_json(option.lag_peak),
        "unavailable_peak": option.unavailable_peak,
    }


def _estimate_json(one: Estimate) -> dict[str, float]:
    return {"mean": one.mean, "low": one.low, "high": one.high}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- sentences ------------------------------------------------------------------------------------


def _absence_words(history: GroupHistory) -> list[str]:
    away = away_ms(history)
    joined = sum(one.joined for one in history.episodes)
    sentences = []
    if away:
        ended = [one for one in away if math.isfinite(one)]
        words = f"In {span_words(history.days)} {counted(len(away), 'absence')} began"
        if ended:
            half, most = np.quantile(ended, [0.5, 0.9]).tolist()
            words += (
                f"; {len(ended):,} ended: half of them within {_about(half)}, nine of ten within "
                f"{_about(most)}, the longest after {_about(ended[-1])}"
            )
        gone = len(away) - len(ended)
        words += f"; {gone:,} never." if ended and gone else "."
        sentences.append(words if ended else f"{words[:-1]}, and nobody came back.")
    if joined:
        sentences.append(f"{counted(joined, 'new member')} joined.")
    return sentences


def _about(duration_ms: float) -> str:
    """Return a duration to the second; a short one to a tenth of a second."""
    return seconds(round(duration_ms, -2 if duration_ms < 10_000 else -3))


def _price_words(advice: Advice) -> str:
    cost = advice.cost
    if not cost.move_ms:
        return "A move costs this group nothing: a partition does useful work as soon as assigned."
    words = f"A partition that moves does useful work {seconds(cost.move_ms)} after its assignment"
    if cost.return_ms != cost.move_ms:
        words += f", one that comes back to its process {seconds(cost.return_ms)} after"
    return f"{words}; who comes back after its partitions moved makes them move twice."


def _choice_words(advice: Advice) -> str:
    waits = waits_ms(advice.advised.policy)
    away = np.array(away_ms(advice.history))
    if not away.size:
        return "Nobody was absent, so the time-out made no difference."
    if waits:
        heard_ms = advice.history.session_timeout_ms if advice.history.is_static else 0
        share = float((away <= waits + heard_ms).mean())
        longest = max((one for one in away.tolist() if math.isfinite(one)), default=0.0)
        more = (
            "The time-out is longer than the longest of them, as longer ones will come."
            if longest < waits
            else "Waiting longer would keep the partitions of those that take longer out of "
            "service for more than it saves."
        )
        return (
            f"{share:.0%} of the absences end within {seconds(waits)}: waiting for these costs "
            f"less than moving their partitions there and back. {more}"
        )
    if not advice.cost.move_ms:
        return "So waiting for a lost member only makes an outage longer."
    return (
        "Too few come back soon enough: waiting would cost more than moving, whatever the time-out."
    )


def _ration_words(advice: Advice) -> str:
    chosen = advice.advised
    if "max_moves_per_round" not in chosen.policy.options:
        return ""
    waits = waits_ms(chosen.policy)
    same = (
        one
        for one in advice.options
        if waits_ms(one.policy) == waits and one.policy.name in {"simple", "deferred"}
    )
    plain = next(same, None)
    if plain is None:
        return ""
    return (
        f"The ration keeps at most {chosen.unavailable_peak:,.0f} partitions out of service at "
        f"once, against {plain.unavailable_peak:,.0f} without, and costs no more."
    )


def _warmup_reason(advice: Advice) -> str:
    """Return what warm-ups save, and their price; "" if they are not advised."""
    warmup = warmup_in(advice.advised.policy)
    if warmup is None:
        return ""
    words = (
        f"With warm-ups a new owner restores its {seconds(advice.cost.move_ms)} of state while the "
        "old owner works on. Your application needs the callback on_warmup for this"
    )
    if not warmup.standbys:
        return f"{words}, and members restore beside their work."
    return f"{words}. The standby holds each state a second time, permanently."


def _sure_words(advice: Advice) -> str:
    now, then = advice.current.unavailable_s, advice.advised.unavailable_s
    if advice.best == advice.today:
        return f"No other setting would have cost less than the {now.mean:,.1f} of today."
    saved = advice.saving_s
    words = (
        f"It would have kept {then.mean:,.1f} partition-seconds a day out of service, against "
        f"{now.mean:,.1f} with what the group has today: {saved.mean:,.1f} less, and between "
        f"{saved.low:,.1f} and {saved.high:,.1f} less in {CONFIDENCE:.0%} of the resampled "
        "histories"
    )
    if not advice.is_clear:
        return f"{words}, so the difference may be chance."
    return f"{words}; in {advice.near_best:.0%} of these it is within 5 % of the best there is."
