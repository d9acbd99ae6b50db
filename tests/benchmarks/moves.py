"""Where each millisecond of a move goes: the steps of a join and of a close, as a picture.

Two members share twelve partitions at Kafka's default time-outs. A third process joins, and is
closed. The steps are those of `tests.lab.moves`; figures are medians.

    python -m tests.benchmarks.moves --write    # also draws docs/images/moves.svg
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from coopgroup.telemetry import AssignmentReceived, Envelope, StateChanged
from coopgroup.testing import KafkaCluster
from docs.sections import DOCS
from tests.lab.analysis import TrialLog
from tests.lab.moves import Step, picture, steps_of
from tests.lab.spec import BELL_TOPIC
from tests.support.live_group import Player, playing

REPEAT: Final = 7
HEARTBEAT_MS: Final = 3_000
KINDS: Final = {"coopgroup-simple-bell": "with the bell", "coopgroup-simple": "without a bell"}
PICTURE: Final = DOCS / "images" / "moves.svg"


def run(*, repeat: int = REPEAT) -> dict[str, Any]:
    """Measure; return the median of each step in ms, by event and kind."""
    found: dict[str, Any] = {}
    with KafkaCluster() as cluster:
        cluster.create_topic(BELL_TOPIC, 1)
        for kind, title in KINDS.items():
            moves: dict[str, list[tuple[Step, ...]]] = {"join": [], "close": []}
            with playing(
                cluster,
                kind=kind,
                rate=100.0,
                session_timeout_ms=45_000,
                heartbeat_interval_ms=HEARTBEAT_MS,
            ) as player:
                _play(player, repeat)
                for event, steps in _moves(player.envelopes(), player.log()):
                    moves[event].append(steps)
            for event, rows in moves.items():
                found[f"{event}, {title}"] = _medians(rows)
    return found


def _play(player: Player, repeat: int) -> None:
    player.group.start("m1", "m2")
    player.settle()
    for _ in range(repeat):
        for change in (player.group.start, player.group.stop):
            # At any moment between two heartbeats, not always soon after one.
            time.sleep(player.group.chance.uniform(0, HEARTBEAT_MS / 1000))
            change("m3")
            player.settle()


def _moves(envelopes: list[Envelope], log: TrialLog) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """Yield each join and close of the third process with its steps.

    After a move, all records of a partition that moved are the new owner's.
    """
    # The rows have the monotonic clock, and telemetry the wall clock.
    offset_ms = (time.time_ns() - time.monotonic_ns()) / 1e6
    begins = [
        (one.at_ms, "join" if one.record.before == "unsubscribed" else "close")
        for one in envelopes
        if isinstance(one.record, StateChanged)
        and (one.record.before, one.record.after)
        in {("unsubscribed", "joining"), ("stable", "leaving")}
    ][2:]  # without the first members
    ends = [at_ms for at_ms, _ in begins[1:]] + [float("inf")]
    for (began_ms, event), end_ms in zip(begins, ends, strict=True):
        of_move = [one for one in envelopes if began_ms <= one.at_ms < end_ms]
        first_ms = {}
        for one in of_move:
            if isinstance(one.record, AssignmentReceived) and one.record.gained:
                gained = [partition for _, partition in one.record.gained]
                since = log.rows[log.rows["at_ns"] / 1e6 + offset_ms >= one.at_ms]
                first = [since[since["partition"] == each]["at_ns"][:1] for each in gained]
                first_ms[one.member] = max(float(each[0]) for each in first if len(each)) / 1e6
                first_ms[one.member] += offset_ms
        yield event, steps_of(of_move, began_ms, first_ms)


def _medians(rows: list[tuple[Step, ...]]) -> dict[str, float]:
    names = list(dict.fromkeys(step.name for steps in rows for step in steps))
    by_name = [{step.name: step.ms for step in steps} for steps in rows]
    return {
        name: round(statistics.median(one.get(name, 0.0) for one in by_name), 1) for name in names
    }


def main() -> None:
    """Measure, print, and draw with `--write`."""
    found = run()
    for title, steps in found.items():
        print(title, steps, flush=True)
    if "--write" in sys.argv[1:]:
        rows = [(title, [Step(*one) for one in steps.items()]) for title, steps in found.items()]
        PICTURE.write_text(picture(rows))


if __name__ == "__main__":
    main()
