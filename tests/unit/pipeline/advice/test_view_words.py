"""Advice in words."""

import json

import pytest
from attrs import evolve

from coopgroup.pipeline.advice.choose import Estimate
from coopgroup.pipeline.advice.cost import MoveCost, deferred, with_rations, with_warmups
from coopgroup.pipeline.advice.history import Observed
from coopgroup.pipeline.advice.view import advice_json, names_of, setting_words, view_of
from coopgroup.simulator.scenario import Choice, How
from tests.unit.pipeline.advices import made_advice, option
from tests.unit.pipeline.return_times import history

RATION = Choice(
    name="incremental",
    options={
        "max_moves_per_round": 4,
        "move_interval_ms": 1_000,
        "scheduled_rebalance_timeout_ms": 30_000,
    },
)


def test_reasons_say_what_happened_what_it_costs_and_what_follows() -> None:
    said = view_of(made_advice()).reasons
    assert said[0] == (
        "In 10.0 days 30 absences began; 29 ended: half of them within 12 s, nine of ten within "
        "12 s, the longest after 12 s; 1 without a known return."
    )
    assert "does useful work 20 s after its assignment" in said[1]
    assert said[2].startswith("97% of the absences end within 30 s")
    assert said[3] == (
        "Partitions would move 4 times a day, against 9 with today's setting, and at most 6 would "
        "be out of service at once, against 6."
    )
    assert "40 partition-seconds a day" in said[4]
    assert "between 40 and 60 less in 90%" in said[4]
    assert "in 97% of these it is within 5 %" in said[4]
    assert said[5] == (
        "Today's setting costs 90 partition-seconds a day, as the history shows. The replays are "
        "wrong by 5. All figures of time out of service are scaled by this difference. They move "
        "75% of the partitions that moved in the history."
    )


def test_reason_not_to_wait_is_that_moves_are_free_or_nobody_returns() -> None:
    free = view_of(made_advice(best=0, today=2, cost=MoveCost())).reasons
    assert "So waiting for a lost member only makes an outage longer." in free
    gone = view_of(made_advice(best=0, today=2, history=history([None] * 30))).reasons
    assert gone[0] == "In 10.0 days 30 absences began, without a known return."
    assert any(one.startswith("As far as known, too few return soon enough") for one in gone)


def test_difference_that_may_be_chance_is_called_that() -> None:
    unsure = made_advice(saving_s=Estimate(mean=5, low=-3, high=9))
    assert view_of(unsure).lead.endswith("if anything: it hardly matters.")
    assert view_of(unsure).reasons[4].endswith("so the difference may be chance.")
    assert view_of(made_advice()).lead == (
        "Use the deferred policy, which waits 30 s for a lost member."
    )


def test_setting_of_today_that_is_best_is_kept() -> None:
    kept = made_advice(today=2)
    assert view_of(kept).lead == "Keep the deferred policy, which waits 30 s for a lost member."
    assert view_of(kept).reasons[3] == (
        "No other setting would have cost clearly less than the 40 of today."
    )


def test_saving_below_the_error_of_the_model_is_not_advised() -> None:
    seen = Observed(unavailable_s=90.0)
    told = history([12_000] * 30, observed=seen)
    kept = made_advice(cheapest=2, best=0, history=told, replayed_s=150.0)
    assert view_of(kept).lead == "Keep the simple policy, which does not wait for a lost member."
    # Why the cheapest setting would be good is no reason for today's.
    assert view_of(kept).reasons[2:] == (
        (
            "The cheapest setting saves 50 partition-seconds a day, which is less than the error "
            "of the model."
        ),
        (
            "Today's setting costs 90 partition-seconds a day, as the history shows. The replays "
            "are wrong by 60. All figures of time out of service are scaled by this difference."
        ),
    )
    unchecked = made_advice(history=history([12_000] * 30))
    assert view_of(unchecked).reasons[-1].endswith("so nothing checks the replays.")


def test_unknown_cost_of_a_move_is_never_called_nothing() -> None:
    """Only the user knows it, so the advice has a condition and is not clear."""
    unknown = made_advice(best=0, today=2, cost=MoveCost(is_known=False))
    assert not unknown.is_clear
    for advised in (0, 2):
        told = view_of(made_advice(best=advised, today=2, cost=MoveCost(is_known=False))).lead
        assert told.endswith(", if a move costs nothing: --move-cost-ms decides.")
    said = " ".join(view_of(unknown).reasons)
    assert "The cost of a move is unknown" in said
    assert "costs this group nothing" not in said


def test_ration_is_explained_by_its_worst_moment() -> None:
    options = (*made_advice().options, option(RATION, 40.2, peak=2))
    said = view_of(made_advice(options=options, best=4, today=3)).reasons
    assert "at most 2 would be out of service at once, against 6" in " ".join(said)
    assert setting_words(RATION) == (
        "the incremental policy, which waits 30 s for a lost member and moves at most 4 partitions "
        "every 1 s"
    )
    without = {**RATION.options, "scheduled_rebalance_timeout_ms": 0}
    assert setting_words(Choice(name="incremental", options=without)) == (
        "the incremental policy, which moves at most 4 partitions every 1 s"
    )


@pytest.mark.parametrize(
    ("changed", "is_told"),
    [
        pytest.param({}, True, id="most of the time out of service"),
        pytest.param({"observed": Observed(unavailable_s=900.0)}, False, id="a small part of it"),
        pytest.param({"observed": Observed()}, False, id="an unknown part"),
        pytest.param({"is_static": True}, False, id="static members are meant to be waited for"),
        pytest.param({"episodes": history([12_000] * 30).episodes}, False, id="members that left"),
    ],
)
def test_a_session_timeout_that_costs_most_is_named(
    changed: dict[str, object], is_told: bool
) -> None:
    """30 deaths in 10 days of a member with 3 partitions: 405 of 600 partition-seconds a day."""
    died = tuple(
        evolve(one, absences=tuple(evolve(gone, how=How.CRASH) for gone in one.absences))
        for one in history([12_000] * 30).episodes
    )
    plain = {"session_timeout_ms": 45_000, "members": 4, "partitions": 12, "episodes": died}
    past = history([], **{"observed": Observed(unavailable_s=600.0), **plain, **changed})
    said = [one for one in view_of(made_advice(history=past)).reasons if "session timeout" in one]
    words = (
        "30 absences were deaths: the group noticed a death only after the session timeout of 45 "
        "s. This took about 405 partition-seconds a day, under any policy. A shorter session "
        "timeout takes less."
    )
    assert said == ([words] if is_told else [])


def test_notes_tell_what_was_left_out_and_what_failed() -> None:
    told = history([1_000] * 30, left_out=3, notes=("Also.",))
    left_out, failed, broken, also = view_of(
        made_advice(failed=2, violations=1, history=told)
    ).notes[:4]
    assert left_out.startswith("3 absences began shortly before the history ends")
    assert failed == "2 replays failed and count for nothing."
    assert (broken.startswith("1 invariant was broken"), also) == (True, "Also.")


def test_snippet_is_python_with_the_policy_and_the_group() -> None:
    text = view_of(made_advice(history=history([12_000] * 30, group='it\'s "g"'))).snippet
    compile(text, "snippet", "exec")
    assert '"group.id": "it\'s \\"g\\""' in text
    assert "policy=DeferredPolicy(scheduled_rebalance_timeout_ms=30_000)" in text
    rationed = view_of(
        made_advice(options=(option(RATION, 1), option(deferred(0), 2)), best=0)
    ).snippet
    assert (
        "IncrementalPolicy(max_moves_per_round=4, move_interval_ms=1_000, "
        "scheduled_rebalance_timeout_ms=30_000)"
    ) in rationed
    assert "policy=SimplePolicy()" in view_of(made_advice(best=0, today=2)).snippet
    eager = (option(Choice(name="eager"), 1), option(deferred(0), 2))
    assert view_of(made_advice(options=eager, best=0, today=0)).snippet == ""


def test_the_share_of_proven_returns_is_told_and_likely_ones_have_an_answer_of_their_own() -> None:
    told = {"absent": 40, "proven": 10, "likely": 20}
    proven = made_advice(history=history([12_000] * 10 + [None] * 30, **told), best=0, today=0)
    said = view_of(proven).reasons
    assert said[1].startswith("10 of 40 absences (25%) ended with a proven return")
    assert "--likely-returns use" in said[2]
    both = made_advice(history=history([12_000] * 30, uses_likely=True, **told), proven=proven)
    assert (
        view_of(both)
        .reasons[2]
        .endswith(
            "which counts as a return here. With proven returns only: "
            "Keep the simple policy, which does not wait for a lost member."
        )
    )
    found = advice_json(both)
    assert found["advised"]["policy"] == "deferred"
    assert found["with_proven_returns_only"]["advised"]["policy"] == "simple"


def test_json_has_everything_as_plain_values() -> None:
    found = json.loads(json.dumps(advice_json(made_advice())))
    assert found["advised"]["options"] == {"scheduled_rebalance_timeout_ms": 30_000}
    assert (found["group"], found["today"]["policy"], found["is_clear"]) == ("g", "simple", True)
    assert found["saving_partition_s_per_day"] == {"mean": 50, "low": 40, "high": 60}
    assert (found["history"]["absences"], len(found["options"])) == (30, 4)
    assert found["snippet"] == view_of(made_advice()).snippet


def test_warm_ups_are_explained_and_can_be_pasted() -> None:
    warm = with_warmups(deferred(30_000), MoveCost(move_ms=20_000), members=4)
    given = made_advice(options=(option(deferred(0), 90.0), *(option(one, 9.0) for one in warm)))
    assert (
        "the deferred policy with warm-ups and a standby, which waits 30 s" in view_of(given).lead
    )
    (reason,) = (one for one in view_of(given).reasons if "warm-ups" in one)
    assert "20 s of state" in reason
    assert reason.endswith("a second time, permanently.")
    text = view_of(given).snippet
    compile(text, "snippet", "exec")
    assert "from coopgroup.policies import Warmup\n" in text
    assert "warmup=Warmup(max_concurrent=8, timeout_ms=80_000, standbys=1)" in text
    without = made_advice(best=1, options=given.options)
    assert any(one.endswith("beside their work.") for one in view_of(without).reasons)


WARM, DOUBLED = with_warmups(deferred(30_000), MoveCost(move_ms=20_000), members=4)
ODD = Choice(name="incremental", options={"lag_imbalance_min": 2})


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        (
            [deferred(one) for one in (0, 14_000, 12_000, 16_500)],
            "simple; deferred, waits 12, 14 or 16.5 s",
        ),
        ([RATION], "incremental, waits 30 s, 4 moves every 1 s"),
        ([WARM], "deferred, warm-ups, waits 30 s"),
        ([DOUBLED], "deferred, warm-ups and standby, waits 30 s"),
        (
            with_rations(deferred(30_000), partitions=5)[:3],
            "incremental, waits 30 s, 1 move every 1 s, 1 move every 5 s or 4 moves every 1 s",
        ),
        ([ODD], "incremental, waits 60 s, lag_imbalance_min=2"),
    ],
)
def test_settings_have_short_names_and_share_what_they_share(
    settings: list[Choice], names: str
) -> None:
    assert names_of(settings) == names
