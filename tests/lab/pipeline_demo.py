"""`make history`: history of real groups, and what the pipeline makes of it.

First comes advice for a group with a past: `tests.lab.rollouts` has kept the history of 20 rollouts
on a real broker. Then two groups live through the same half minute on a broker of their own: an
eager group of confluent_kafka, and a deferred group of ours. A member of each is closed and comes
back, one is killed and comes back, and one is killed permanently: lag piles up until the others
have its partitions. Then the jobs run as a user would run them. All use one session of Spark.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.table import Table

from coopgroup.cli.app import run
from coopgroup.errors import CoopgroupError
from coopgroup.pipeline.spark.session import LIGHT, build_session, connector_jars, require_spark
from coopgroup.report.wording import seconds
from coopgroup.testing import KafkaCluster
from tests.lab.controller import Trial
from tests.lab.rollouts import CANNED, ENDS, GROUP, MEMBERS, RECORDS, ROLLOUTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from tests.lab.group import Group


TOPIC: Final = "orders"
PARTITIONS: Final = 12
RATE_PER_PARTITION: Final = 20.0
OURS: Final = "orders-deferred"
EAGER: Final = "orders-eager"
LOSS_DELAY_MS: Final = 5_000  # with the session of six seconds, less than a group has to settle
COMMIT_MS: Final = 500
BOUNCE_S: Final = 1.0
DEATH_S: Final = 3.0
SETTLE_S_MAX: Final = 15.0
QUIET_S: Final = 1.0
DRAIN_S_MAX: Final = 15.0
LAG_EVERY_S: Final = 1
REPETITIONS: Final = 2
SHOWN_MAX: Final = 20
MOVE_MS: Final = 1_500


@click.command("demo")
@click.option(
    "--tables",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="A new folder for the tables; without it, they are deleted in the end.",
)
@click.option("--html", metavar="OUT", help="Keep the page of advice there.")
def command(*, folder: Path | None, html: str | None) -> int:
    """Advise on the history of a real group, then make history on a real broker."""
    require_spark()
    if folder is not None:
        if folder.exists() and any(folder.iterdir()):
            raise click.UsageError(f"--tables: {folder} is not empty; name a new folder")
        return _play(folder, html)
    with TemporaryDirectory(prefix="coopgroup-pipeline-demo-") as temporary:
        return _play(Path(temporary), html)


def _play(folder: Path, html: str | None) -> int:
    console = Console(stderr=False)
    jars = connector_jars()
    build_session(jars=jars, extra=LIGHT)
    page = html or str(folder / "advice.html")
    _advise(console, str((folder / CANNED.name).resolve()), page)
    # SIGTERM ends the demonstration like Ctrl-C, so that no process stays behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with KafkaCluster() as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        bootstrap = cluster.bootstrap_servers
        telemetry = folder / "telemetry.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        with Trial(
            client_config=cluster.client_config(),
            topics=[TOPIC],
            partitions_per_topic=PARTITIONS,
        ) as trial:
            _live(trial, telemetry.resolve(), console)
        for arguments in jobs(str(folder), bootstrap, str(telemetry)):
            _job(console, arguments)
    _show(console, str(folder))
    if html is not None:
        console.print(f"The advice for the group {GROUP} is in {html}.", soft_wrap=True)
    return 0


def jobs(folder: str, bootstrap: str, telemetry: str) -> tuple[list[str], ...]:
    """Return the running jobs as arguments of `coopgroup pipeline`."""
    place, broker = ["--tables", folder], ["--bootstrap-server", bootstrap]
    return (
        ["history", *place, *broker],
        ["lag", *place, *broker, "--every", str(LAG_EVERY_S), "--reset", "earliest"],
        ["telemetry", telemetry, *place],
        ["episodes", *place],
    )


def _job(console: Console, arguments: Sequence[str]) -> int:
    """Run a command of the pipeline, and show it.

    Raises:
        CoopgroupError: it failed, and said why.
    """
    console.print(f"[bold]coopgroup pipeline {' '.join(arguments)}[/bold]", soft_wrap=True)
    status = run(["pipeline", *arguments])
    if status:
        raise CoopgroupError(f"coopgroup pipeline {arguments[0]} failed")
    return status


# --- a group with a past --------------------------------------------------------------------------


def _advise(console: Console, folder: str, page: str) -> None:
    console.print(
        f"[bold]A group with a past[/bold]: {len(MEMBERS)} members of confluent_kafka with static "
        f"ids were restarted in {ROLLOUTS} rollouts (python -m tests.lab.rollouts). Suppose that a "
        f"partition that moves needs {seconds(MOVE_MS)} to load its state."
    )
    read_canned(folder)
    place = ["--tables", folder]
    _job(console, ["episodes", *place])
    cost = ["--move-cost-ms", str(MOVE_MS)]
    _job(console, ["advise", "--group", GROUP, *place, *cost, "--html", page])


def read_canned(folder: str) -> None:
    """Write the kept history into tables, as the jobs `history` and `lag` do."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 - needs the extra

    from coopgroup.pipeline.ends import ENDS_JOB  # noqa: PLC0415 - likewise
    from coopgroup.pipeline.history import write_history  # noqa: PLC0415 - likewise
    from coopgroup.pipeline.lag import write_lag  # noqa: PLC0415 - likewise
    from coopgroup.pipeline.tables import Tables  # noqa: PLC0415 - likewise

    tables = Tables(spark=build_session(), folder=folder)
    raw, ends = (tables.spark.read.parquet((CANNED / one).as_uri()) for one in (RECORDS, ENDS))
    write_history(raw, tables, 0)
    tables.read_until(raw.agg(sql.max("written_ms")).collect()[0][0])
    tables.append(ENDS_JOB, 0, {"ends": ends})
    write_lag(tables, "earliest")


# --- history --------------------------------------------------------------------------------------


def _live(trial: Trial, telemetry: Path, console: Console) -> None:
    console.print("a producer writes, and two groups of three members consume")
    trial.start_producer(rate_per_partition=RATE_PER_PARTITION)
    common = {"commit_interval_ms": COMMIT_MS}
    groups = [
        trial.group("eager", group_id=EAGER, **common),
        trial.group(
            "coopgroup-deferred",
            group_id=OURS,
            policy_arguments={"scheduled_rebalance_timeout_ms": LOSS_DELAY_MS},
            extra_config={"coopgroup.telemetry.file": str(telemetry)},
            **common,
        ),
    ]
    for group in groups:
        group.start("m1", "m2", "m3")
    _settle(groups)
    for number in range(REPETITIONS):
        console.print(f"m1 is closed and comes back ({number + 1} of {REPETITIONS})")
        for group in groups:
            group.stop("m1")
        time.sleep(BOUNCE_S)
        for group in groups:
            group.start("m1")
        _settle(groups)
    console.print("m2 is killed with SIGKILL and comes back")
    _kill(groups, "m2")
    time.sleep(DEATH_S)
    for group in groups:
        group.start("m2")
    _settle(groups)
    console.print("m3 is killed with SIGKILL and never comes back")
    _kill(groups, "m3")
    _settle(groups)
    trial.finish(drain_s=DRAIN_S_MAX)


def _kill(groups: Sequence[Group], name: str) -> None:
    for group in groups:
        group.kill(name)


def _settle(groups: Sequence[Group]) -> None:
    deadline = time.monotonic() + SETTLE_S_MAX
    for group in groups:
        while not group.is_settled(quiet_s=QUIET_S) and time.monotonic() < deadline:
            time.sleep(0.1)


# --- what came of it ------------------------------------------------------------------------------


def _show(console: Console, folder: str) -> None:
    from pyspark.sql import functions as sql  # noqa: PLC0415 - needs the extra

    from coopgroup.pipeline.tables import Tables  # noqa: PLC0415 - likewise

    tables = Tables(spark=build_session(), folder=folder)
    rebalances = tables.read("rebalances").where(sql.col("trigger") != "emptied")
    summed = rebalances.groupBy("group", "source").agg(
        sql.count(sql.lit(1)).alias("rebalances"),
        sql.sum("rounds").alias("rounds"),
        sql.sum("moved").alias("moved"),
        sql.round(sql.sum("unavailable_partition_s"), 1).alias("unavailable_partition_s"),
        sql.round(sql.sum("unavailable_error_s"), 1).alias("error_s"),
    )
    _print(console, "Rebalances", summed.orderBy("group", "source"))
    columns = ("group", "client_id", "partitions", "returned_as", "absent_ms")
    gone = tables.read("absences").orderBy("group", "gone_latest_ms")
    _print(console, "Absences", gone.select(*columns))


def _print(console: Console, title: str, frame: DataFrame) -> None:
    table = Table(title=title)
    for name in frame.columns:
        table.add_column(name.replace("_", " "), overflow="fold")  # words may be wrapped
    for row in frame.limit(SHOWN_MAX).collect():
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    console.print(table)


if __name__ == "__main__":
    command()
