"""`coopgroup compare`: play a scenario with several policies and show their costs.

Runs are spread over the processors. The output does not depend on that.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context
from typing import Final, TypeAlias

import click

from coopgroup.cli.app import find_own_modules
from coopgroup.cli.choices import parse_choices
from coopgroup.cli.simulate import chosen
from coopgroup.cli.simulated import (
    at_work,
    comparison_table,
    comparison_title,
    complain_of,
    page_path,
    policy_line,
    print_table,
    print_verdict,
    progress_bar,
    repeat_command,
)
from coopgroup.errors import ConfigurationError
from coopgroup.report import write_comparison_page
from coopgroup.simulator.comparison import Job, Runner, compare
from coopgroup.simulator.run import Run
from coopgroup.simulator.scenario import BY_BROKER, Scenario
from coopgroup.simulator.scenario.checks import check_scenario
from coopgroup.simulator.scenario.file import read_scenario

__all__ = ["command", "side_by_side"]

_POLICIES: Final = "eager,simple,deferred,incremental"
_SEEDS_MAX: Final = 10_000  # all runs stay in memory until the end


@click.command("compare")
@click.argument("file", metavar="FILE")
@click.option(
    "--policies",
    metavar="NAME[:KEY=VALUE,...],...",
    help="Policies to compare; a name alone has the scenario's options. `consumer` lets the broker "
    "assign (group.protocol=consumer).  [default: eager,simple,deferred,incremental, the "
    "scenario's own policy if that is another one, and consumer if the scenario allows it]",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=_SEEDS_MAX),
    default=5,
    show_default=True,
    help="Number of runs of each policy, with seeds from 1.",
)
@click.option(
    "--assignor", metavar="NAME[:KEY=VALUE,...]", help="Replaces the scenario's assignor."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per policy.")
@click.option("--html", metavar="OUT", help="Write a page with all policies side by side.")
def command(
    *,
    file: str,
    policies: str | None,
    seeds: int,
    assignor: str | None,
    as_json: bool,
    html: str | None,
) -> int:
    """Play a scenario with several policies and compare what they cost.

    FILE is a scenario in TOML.
    """
    scenario = chosen(read_scenario(file), None, assignor)
    choices = parse_choices(
        "--policies", _POLICIES if policies is None else policies, scenario.policy_named
    )
    own = scenario.group.policy
    if policies is None:
        if own not in choices.values():
            choices[str(own)] = own
        if _may_be_by_broker(scenario):
            choices[str(BY_BROKER)] = BY_BROKER
    for label in choices:
        chosen(
            scenario, label, None, option="--policies"
        )  # fail before the first run if the last policy is wrong
    page = page_path(html)
    with _runner(len(choices) * seeds) as run_all:
        runs_by_policy = compare(
            scenario,
            choices,
            range(1, seeds + 1),
            keeps_first=page is not None,
            run_all=run_all,
        )
    if as_json:
        for label, runs in runs_by_policy.items():
            click.echo(policy_line(runs, label))
    else:
        print_table(comparison_title(runs_by_policy), comparison_table(runs_by_policy))
        print_verdict(runs_by_policy)
    if page is not None:
        with at_work("drawing"):
            write_comparison_page(runs_by_policy, page)
    complaints = [
        complain_of(run, repeat_command(file, label, assignor, run.seed))
        for label, runs in runs_by_policy.items()
        for run in runs
    ]
    return 1 if any(complaints) else 0


def _may_be_by_broker(scenario: Scenario) -> bool:
    """Return whether the scenario needs no leader: no hand-overs, and no named resources."""
    try:
        check_scenario(scenario.with_policy(BY_BROKER))
    except ConfigurationError:
        return False
    return True


_Begin: TypeAlias = Callable[
    [Callable[[Job], Run], Sequence[Job], Callable[[], None]], Iterator[Run]
]
"""Plays jobs, yields the runs in the order of the jobs, and reports the end of each job."""


@contextmanager
def _runner(count: int) -> Iterator[Runner]:
    """Yield a runner for this many jobs: this process, or one process per processor."""
    processes = min(count, os.cpu_count() or 1)
    if processes == 1:
        yield _with_progress(_one_by_one)
        return
    # Forking a process with threads can deadlock, so new processes are spawned.
    try:
        with ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=find_own_modules
        ) as pool:
            try:
                yield _with_progress(partial(side_by_side, pool))
            except BaseException:  # Ctrl-C: do not wait for the running jobs
                for process in active_children():
                    process.terminate()
                raise
    except BrokenProcessPool:
        # Exit status 1 of a comparison is reserved for a violated invariant.
        raise click.ClickException(
            "a process that simulated was killed: for want of memory? coopgroup simulate plays "
            "one run at a time"
        ) from None


def _one_by_one(
    play: Callable[[Job], Run], jobs: Sequence[Job], ended: Callable[[], None]
) -> Iterator[Run]:
    for job in jobs:
        yield play(job)
        ended()


def side_by_side(
    pool: Executor,
    play: Callable[[Job], Run],
    jobs: Sequence[Job],
    ended: Callable[[], None],
) -> Iterator[Run]:
    """Play jobs in processes that ignore Ctrl-C.

    A terminal sends Ctrl-C to all processes, and each would print a traceback. Only this process
    handles it, and then ends the others.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # new processes inherit this
    try:
        futures = [pool.submit(play, job) for job in jobs]
    finally:
        signal.signal(signal.SIGINT, before)
    for future in futures:
        # Jobs end in any order. A slow first job must not hide the progress of all later jobs.
        future.add_done_callback(lambda _: ended())
    for future in futures:
        yield future.result()


def _with_progress(begin: _Begin) -> Runner:
    """Show progress if standard error is a terminal."""

    def run_and_show(play: Callable[[Job], Run], jobs: Sequence[Job]) -> Iterator[Run]:
        with progress_bar() as progress:
            task = progress.add_task("simulating", total=len(jobs))
            yield from begin(play, jobs, lambda: progress.advance(task))

    return run_and_show
