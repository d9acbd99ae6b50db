"""Results of the assignor benchmark, as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.benchmarks.assigning.contestants import KEYS, RUN_MS_MAX, RUNS
from tests.benchmarks.assigning.groups import ASSIGNORS, CASES

__all__ = ["BEGIN", "END", "growth", "tables"]

BEGIN: Final = "<!-- assignors:begin -->"
END: Final = "<!-- assignors:end -->"
NOTHING: Final = "\N{EN DASH}"
SIZES_SHOWN: Final = ("10000", "100000", "1000000")
INTRODUCTION: Final = (
    "CPU time in ms for 10,000 / 100,000 / 1,000,000 partitions, and how it grows with their",
    "number n, from 1,000 on. There is a member for each hundred partitions, for each ten where",
    "subscriptions are disjoint, and there are 2,000 at most.",
    f"Each figure is the median of {RUNS} runs, one in brackets a single run: who takes more than",
    f"{RUN_MS_MAX / 1000:g} s is not asked for more partitions (Java is, where a goal needs it).",
    "The first column is `assign` alone; the second one is all that the others do in one call,",
    "from the claims of members to a set of partitions for each.",
    "How far ahead of Java both are is said for the largest group that Java finished.",
    "",
)
QUALITY: Final = (
    "",
    "What came of it in the largest group that others finished too: largest difference of two",
    "members' counts / what stays, of what a balanced target can keep (in mixed subscriptions: of",
    "what was owned; where racks are known: how many are far, in a rack without a replica) /",
    "highest lag of a member, of the mean.",
    "",
)
LIMITS: Final = (
    "",
    "A million partitions among 10,000 members: CPU time, and the peak of memory beside what goes",
    "in:",
    "",
)

Found = Mapping[str, Any]


def growth(ms_by_size: Mapping[str, float]) -> float | None:
    """Return the exponent e of n^e that fits the times best; None for less than two sizes."""
    if len(ms_by_size) < 2:
        return None
    points = [(math.log(int(size)), math.log(ms)) for size, ms in ms_by_size.items()]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return slope / sum((x - mean_x) ** 2 for x, _ in points)


def tables(found: Found) -> str:
    """Return all results as Markdown.

    Args:
        found: result of the benchmark `assignors`.
    """
    found = _ordered(found)
    titles: Mapping[str, str] = found["contestants"]
    others = {key: title for key, title in titles.items() if key != "claims"}
    lines = [
        *INTRODUCTION,
        *_table(["assignor", "case", *titles.values(), "ahead of Java"], _time_rows(found)),
        *QUALITY,
        *_table(["assignor", "case", "partitions", *others.values()], _quality_rows(found)),
        *LIMITS,
        *_table(["", "ms", "of one argsort", "bytes a partition"], _limit_rows(found["limits"])),
        "",
        *found["notes"],
    ]
    return "\n".join(lines).rstrip()


def _ordered(found: Found) -> Found:
    """Return the results in the order of the tables: the file of results sorts keys by name."""
    contestants = sorted(found["contestants"], key=KEYS.index)
    return {
        **found,
        "contestants": {key: found["contestants"][key] for key in contestants},
        "times": {
            assignor: {case: by_case[case] for case in CASES if case in by_case}
            for assignor, by_case in sorted(
                found["times"].items(), key=lambda item: ASSIGNORS.index(item[0])
            )
        },
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---" if place < 2 else "---:" for place in range(len(head))]
    return ["| " + " | ".join(row) + " |" for row in (head, marks, *rows)]


def _time_rows(found: Found) -> list[list[str]]:
    rows = []
    for assignor, by_case in found["times"].items():
        for case, by_size in by_case.items():
            cells = [_time_cell(by_size, key) for key in found["contestants"]]
            rows.append([assignor, CASES[case].title, *cells, _ahead_cell(by_size)])
    return rows


def _time_cell(by_size: Found, key: str) -> str:
    timed = {size: by_key[key] for size, by_key in by_size.items() if by_key[key]["runs"]}
    if not timed:
        return NOTHING
    parts = []
    for size in SIZES_SHOWN:
        one = timed.get(size)
        text = NOTHING if one is None else _ms(one["ms"])
        parts.append(f"({text})" if one is not None and one["runs"] == 1 else text)
    exponent = growth({size: one["ms"] for size, one in timed.items()})
    return " / ".join(parts) + ("" if exponent is None else f", n^{exponent:.1f}")


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _ahead_cell(by_size: Found) -> str:
    """Return the speed-up over Java, alone and with claims, in Java's largest group."""
    both = [
        by_key
        for by_key in by_size.values()
        if by_key.get("java", {}).get("runs") and by_key["coopgroup"]["runs"]
    ]
    if not both:
        return NOTHING
    last = both[-1]
    ratios = [last["java"]["ms"] / last[key]["ms"] for key in ("coopgroup", "claims")]
    return " / ".join(f"{ratio:,.1f}" if ratio < 10 else f"{ratio:,.0f}" for ratio in ratios)


def _quality_rows(found: Found) -> list[list[str]]:
    keys = [key for key in found["contestants"] if key != "claims"]
    rows = []
    for assignor, by_case in found["times"].items():
        for case, by_size in by_case.items():
            shown = [size for size in by_size if _answered(by_size[size]) > 1] or list(by_size)
            size = shown[-1]
            row = by_size[size]
            cells = [_quality_cell(row[key], found["kept"][case][size]) for key in keys]
            rows.append([assignor, CASES[case].title, f"{int(size):,}", *cells])
    return rows


def _answered(by_key: Found) -> int:
    return sum(1 for key, one in by_key.items() if key != "claims" and one["runs"])


def _quality_cell(one: Found, kept: Found) -> str:
    if not one["runs"]:
        return NOTHING
    if "far" in one:
        return f"{one['spread']:,} / {one['far']:,} far / {one['lag_peak']:.2f}"
    possible = kept["most"] if kept["most"] is not None else kept["owned"]
    stays = f"{100 * one['kept'] / possible:.4g} %" if possible else NOTHING
    return f"{one['spread']:,} / {stays} / {one['lag_peak']:.2f}"


def _limit_rows(limits: Found) -> list[list[str]]:
    return [
        [
            name,
            f"{one['ms']:.0f}",
            f"{one['ms'] / limits['argsort']['ms']:.1f}",
            f"{one['bytes']:.0f}" if "bytes" in one else NOTHING,
        ]
        for name, one in limits.items()
    ]
