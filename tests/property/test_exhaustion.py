"""Every fault at every message: a small part of what `make exhaust` plays, and its parts."""

import os
import signal
from pathlib import Path
from typing import Any

import attrs
import pytest

from coopgroup.simulator.scenario import LEADER, Identity
from coopgroup.simulator.world.network import Mishap
from coopgroup.telemetry import AssignmentReceived
from tests.support.exhaust import Raised, main, ordered, played
from tests.support.mutants import MUTANTS, broken
from tests.swarm.checkers.faults import check_faults
from tests.swarm.consumers import CONSUMER
from tests.swarm.coverage import covering, impossible_pairs, possible
from tests.swarm.exhaust import Wanted, exhaust, failure_of, single_faults
from tests.swarm.faults import without_faults
from tests.swarm.histories import CELLS, HISTORIES, POLICIES, Cell
from tests.swarm.memo import Memo
from tests.swarm.play import play
from tests.swarm.run_files import read_run, run_to_toml
from tests.swarm.runs import ActKind

JOINS = Cell("joins", "none", "deferred")
OF_KIP848 = Cell("joins", "none", CONSUMER)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("history", HISTORIES)
def test_history_without_a_fault_ends_at_rest(history: str) -> None:
    """A history that fails by itself would hide what a fault does."""
    for cell in (cell for cell in CELLS if cell.history == history):
        assert play(cell.run()).violations == (), str(cell)


@pytest.mark.parametrize("identity", Identity)
def test_member_that_returns_with_other_topics_gets_them(identity: Identity) -> None:
    """A static member's seat has its old subscription until its join (KAFKA-20434)."""
    played = play(Cell("returns with other topics", identity.value, CONSUMER).run())
    gained = {
        name
        for envelope in played.telemetry
        if envelope.client == "p2" and isinstance(envelope.record, AssignmentReceived)
        for name in envelope.record.gained.names
    }
    assert gained == {"T", "U"}


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("cell", "least"), [(JOINS, 21), (OF_KIP848, 19)])
def test_no_lost_request_costs_a_joining_group_anything(cell: Cell, least: int) -> None:
    with covering() as reached:
        tally = exhaust(cell, wanted=Wanted(names=frozenset({"REQUEST_LOST"})))
    assert tally.runs >= least
    assert tally.failures == []
    assert reached <= possible()
    assert not reached & impossible_pairs()


@pytest.mark.parametrize(
    "cell", [OF_KIP848, Cell("both protocols", "none", CONSUMER), Cell("kip-848", "none", "simple")]
)
def test_each_message_of_either_protocol_meets_each_fault(cell: Cell) -> None:
    """A heartbeat of KIP-848 has another name in Kafka than here."""
    met: dict[str, set[str]] = {}
    for run, _ in single_faults(cell):
        fault = next(act for act in run.acts if act.is_fault)
        met.setdefault(fault.request, set()).add(fault.mishap)
    del met[""]
    assert "ConsumerBeat" in met
    assert set(map(len, met.values())) == {len(Mishap)}


def test_broker_that_assigns_has_no_leader_to_end() -> None:
    assert not any(act.process == LEADER for run, _ in single_faults(OF_KIP848) for act in run.acts)


def test_bug_that_a_lost_sync_shows_is_found() -> None:
    bug = next(one for one in MUTANTS if one.name == "a failed sync drops what is held")
    run, usual = next(
        (run, usual)
        for run, usual in single_faults(JOINS)
        if any((act.request, act.mishap) == ("SyncGroup", "REQUEST_LOST") for act in run.acts)
        and any(act.is_fault and act.process == "p2" for act in run.acts)
    )
    assert failure_of(run, usual) is None
    with broken(bug):
        failure = failure_of(run, usual)
    assert failure is not None


def test_loss_that_no_fault_explains_is_an_objection() -> None:
    """The swarm excuses a member that stood still, however short that was."""
    run, usual = next(
        (run, usual)
        for run, usual in single_faults(JOINS)
        if any(
            (act.kind, act.process, act.for_ms) == (ActKind.PAUSE, "p2", 900) for act in run.acts
        )
    )
    telemetry = play(run, usual=usual).telemetry
    acts = tuple(attrs.evolve(act, for_ms=300 if act.is_fault else act.for_ms) for act in run.acts)
    shorter = attrs.evolve(run, acts=acts)
    assert [*check_faults(run, telemetry, usual)] == []
    found = [*check_faults(shorter, telemetry, usual)]
    assert any("loses its membership" in one.message for one in found)


def test_loss_of_a_member_of_kip848_that_no_fault_explains_is_an_objection() -> None:
    run, usual = next(
        (run, usual)
        for run, usual in single_faults(OF_KIP848)
        if any(
            (act.kind, act.process, act.for_ms) == (ActKind.PAUSE, "p2", 900) for act in run.acts
        )
    )
    telemetry = play(run, usual=usual).telemetry
    acts = tuple(attrs.evolve(act, for_ms=300 if act.is_fault else act.for_ms) for act in run.acts)
    assert [*check_faults(run, telemetry, usual)] == []
    found = [*check_faults(attrs.evolve(run, acts=acts), telemetry, usual)]
    assert any("loses its membership" in one.message for one in found)


def test_run_with_a_fault_is_its_history_and_one_act() -> None:
    history = JOINS.run()
    for run, _ in list(single_faults(JOINS))[::97]:
        assert without_faults(run).acts == history.acts
        assert sum(act.is_fault for act in run.acts) == 1


@pytest.mark.timeout(120)
def test_run_with_a_memo_is_the_same_run() -> None:
    """A step that another run took counts only if session, event and time are the same."""
    runs = [run for run, _ in single_faults(Cell("bounces", "static", "incremental"))][::50]
    memo = Memo()
    with memo.used():
        remembered = [play(run, transcript=True) for run in runs]
    assert memo.kept
    for run, one in zip(runs, remembered, strict=True):
        assert play(run, transcript=True).transcript == one.transcript


def test_run_with_a_fault_is_saved_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    for run, _ in list(single_faults(JOINS))[::97]:
        path.write_text(run_to_toml(run), encoding="utf-8")
        assert read_run(path) == run


def test_each_third_of_the_cells_has_everything() -> None:
    cells = ordered(CELLS)
    assert sorted(cells) == sorted(CELLS)
    third = cells[: len(cells) // 3 + len(HISTORIES)]
    assert {cell.history for cell in third} == set(HISTORIES)
    assert {cell.identity for cell in third} == set(Identity)
    assert {cell.policy for cell in third} == set(POLICIES)


@pytest.mark.parametrize("wrong", ["0/2", "3/2", "x", "1/0"])
def test_part_that_is_none_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--part", wrong])
    assert ended.value.code == 2
    assert f"{wrong!r} is not k/n" in capsys.readouterr().err


def _raises(cell: Cell, **_: object) -> None:
    raise ValueError(cell.history)


def _raises_in_one_cell(cell: Cell) -> dict[str, Any]:
    if cell == JOINS:
        raise KeyError("of one cell")
    return {"cell": str(cell)}


def _kills_its_worker(cell: Cell) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {"cell": str(cell)}


def test_exception_in_a_cell_is_a_failure_of_that_cell_only() -> None:
    """It ended the loop, and the results of all other cells were lost."""
    found = list(played([JOINS, OF_KIP848], _raises_in_one_cell))
    assert Raised(JOINS, "KeyError: 'of one cell'") in found
    assert {"cell": str(OF_KIP848)} in found


def test_cell_whose_worker_is_killed_fails() -> None:
    (found,) = played([JOINS], _kills_its_worker)
    assert isinstance(found, Raised)
    assert "BrokenProcessPool" in found.line


def test_cell_that_raises_is_not_done(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.support.exhaust._play", _raises)
    monkeypatch.setattr("tests.support.exhaust.BUILD", tmp_path)
    assert main(["decides slowly"]) == 1
    output = capsys.readouterr().out
    assert "decides slowly, none, simple: ValueError: decides slowly" in output
    assert "0 of 3 cells" in output
    assert not list(tmp_path.iterdir())
