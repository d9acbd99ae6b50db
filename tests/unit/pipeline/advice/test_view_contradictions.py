"""All parts of an advice page say the same."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pytest
from attrs import evolve

from coopgroup.pipeline.advice.choose import Advice, Estimate
from coopgroup.pipeline.advice.cost import MoveCost, deferred
from coopgroup.pipeline.advice.history import Episode, Observed
from coopgroup.pipeline.advice.view import advice_json, names_of, setting_words, view_of
from coopgroup.pipeline.replay import FIGURES
from coopgroup.report.advice_page import AdviceView
from coopgroup.report.wording import rounded
from coopgroup.simulator.scenario import Choice
from tests.unit.pipeline.advices import advised_by, made_advice
from tests.unit.pipeline.return_times import Array, history

CLASSES: Final = {"SimplePolicy": "simple", "DeferredPolicy": "deferred"}
CLASSES_MORE: Final = {**CLASSES, "IncrementalPolicy": "incremental"}


def contradictions(advice: Advice, view: AdviceView) -> list[str]:
    """Return the parts of a page that disagree with the advice, in words."""
    found = []

    def check(part: str, *, holds: bool) -> None:
        if not holds:
            found.append(part)

    rows = {role: row for row in view.rows for role in row.role.split(", ") if role}
    advised, today = advice.advised, advice.current
    verb = "Keep" if advice.best == advice.today else "Use"
    check("lead", holds=view.lead.startswith(f"{verb} {setting_words(advised.policy)}"))
    check("advised row", holds=rows["advised"].place == advice.best)
    check("today's row", holds=(rows["advised"] is rows["today"]) or verb == "Use")
    cards = dict(view.cards)
    for role, one in (("today", today), ("advised", advised)):
        out_s, moved = cards[f"out of service a day, {role}"], cards[f"moves a day, {role}"]
        cells = rows[role].cells
        check(f"card {role}", holds=cells[0].split(" ")[0] == out_s.removesuffix(" s"))
        check(f"moves {role}", holds=cells[1] == moved)
        check(f"mean {role}", holds=rounded(one.unavailable_s.mean) == out_s.removesuffix(" s"))
    shown_s = advice.observed_s
    if shown_s is not None and advice.replayed_s:
        check("history", holds=today.unavailable_s.mean == pytest.approx(shown_s))
        check("saving", holds=advice.saving_s.high <= shown_s + 1e-9)
    saved = today.unavailable_s.mean - advice.options[advice.cheapest].unavailable_s.mean
    check("difference", holds=advice.saving_s.mean == pytest.approx(saved))
    pasted = re.search(r"policy=(\w+)\(", view.snippet)
    policy = CLASSES_MORE[pasted[1]] if pasted else "eager"
    check("snippet", holds=policy == advised.policy.name)
    if view.price:
        played_s = advice.cost.move_ms / 1_000
        names = [names_of([advised.policy])]
        check("price", holds=_cheapest_at(view.price, played_s).startswith(tuple(names)))
    said = json.loads(json.dumps(advice_json(advice)))
    check("json", holds=said["advised"]["policy"] == advised.policy.name)
    check("json headline", holds=said["headline"] == view.lead)
    return found


def _cheapest_at(words: str, price_s: float) -> str:
    """Return the setting that a sentence on prices names for a price."""
    _, _, parts = words.partition(": ")
    for part in re.split("; (?=[a-z]+(?:, [^;]*)? (?:up to|above))", parts):
        limit = re.search(r"^(.*?) (?:if a move costs less than|up to) ([\d.,]+) (s|min)", part)
        if limit is None:
            return part
        seconds = float(limit[2].replace(",", "")) * (60 if limit[3] == "min" else 1)
        if price_s <= seconds:
            return limit[1]
    return ""


class Dice:
    """A replay in which each setting has its own random cost."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, episodes: Sequence[Episode], policies: Sequence[Choice]) -> Array:
        rows = []
        for policy in policies:
            dice = random.Random(f"{self.seed} {policy}")
            moved = dice.choice([0.0, 1.0, 2.0])
            cost = dice.choice([5.0, 20.0, 40.0]) + dice.random() + 20 * moved
            rows.append([cost, moved, float(dice.randrange(1, 7)), 5.0, 0.0, moved])
        return np.array([rows for _ in episodes]).reshape(len(episodes), -1, len(FIGURES))


def an_advice(seed: int) -> Advice:
    dice = random.Random(seed)
    today = dice.choice([Choice(name="eager"), deferred(0), deferred(20_000), deferred(7_777)])
    shown_s = dice.choice([None, 0.0, 50.0, 150.0, 1_000.0])
    cost = dice.choice([MoveCost(move_ms=20_000), MoveCost(), MoveCost(is_known=False)])
    away = [dice.choice([2_000, 12_000, None]) for _ in range(30)]
    past = history(away, today=today, observed=Observed(unavailable_s=shown_s, moved=3.0))
    return advised_by(past, cost, Dice(seed))


def test_no_page_contradicts_itself() -> None:
    found = {}
    kept = priced = 0
    for seed in range(60):
        advice = an_advice(seed)
        view = view_of(advice)
        kept += advice.best == advice.today
        priced += bool(view.price)
        if wrong := contradictions(advice, view):
            found[seed] = wrong
    assert found == {}
    assert 10 < kept < 50
    assert priced > 2


def test_a_contradiction_would_be_found() -> None:
    advice = made_advice()
    view = view_of(advice)
    assert contradictions(advice, view) == []
    snippet = view.snippet.replace("Deferred", "Simple")
    assert contradictions(advice, evolve(view, snippet=snippet)) == ["snippet"]
    cards = (("out of service a day, today", "95 s"), *view.cards[1:])
    assert contradictions(advice, evolve(view, cards=cards)) == ["card today", "mean today"]
    price = (
        "Fewest partition-seconds out of service: simple if a move costs less than 30 s; x above."
    )
    assert contradictions(advice, evolve(view, price=price)) == ["price"]
    saved = Estimate(mean=99, low=90, high=100)
    wrong = evolve(advice, saving_s=saved)
    assert contradictions(wrong, view_of(wrong)) == ["saving", "difference"]
