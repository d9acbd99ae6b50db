"""Code that waits, in virtual time: each job has a thread, and only one thread runs at a time.

Callbacks of an application take time, and block their thread meanwhile. Here such a wait hands the
baton back to the simulation, which goes on until the wait is over. So a seed still determines a
whole run.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from attrs import define, field

if TYPE_CHECKING:
    from collections.abc import Callable

    from coopgroup.simulator.world import World

_STEP_MS: Final = 5


class EndedError(BaseException):
    """The process of the waiting code has ended, or the whole run has."""


@define(eq=False)
class _Strand:
    """One job on its thread.

    Attributes:
        is_over: whether the job has returned.
    """

    job: Callable[[], None]
    is_over: bool = False
    _error: BaseException | None = None
    _own: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))
    _others: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))

    def begin(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()
        self._await()

    def go_on(self) -> None:
        self._own.release()
        self._await()

    def wait(self) -> None:
        """Let the simulation run, on the strand's thread, until `go_on`."""
        self._others.release()
        self._own.acquire()

    def _await(self) -> None:
        self._others.acquire()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        _HERE.strand = self
        try:
            self.job()
        except EndedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised on the simulation's thread
            self._error = error
        finally:
            self.is_over = True
            self._others.release()


_HERE: Final = threading.local()


@define(eq=False)
class Strands:
    """The waiting code of a run."""

    world: World
    _all: list[_Strand] = field(factory=list, init=False)
    _is_over: bool = field(default=False, init=False)

    def begin(self, job: Callable[[], None]) -> None:
        """Run a job up to its first wait."""
        self._all = [one for one in self._all if not one.is_over]
        strand = _Strand(job)
        self._all.append(strand)
        strand.begin()

    def sleep(
        self, for_ms: int, is_alive: Callable[[], bool], is_paused: Callable[[], bool]
    ) -> None:
        """Wait, on the thread of a job; during a pause of the process, until its end.

        Raises:
            EndedError: the process has ended.
        """
        strand: _Strand = _HERE.strand
        while True:
            if self._is_over:
                raise EndedError
            self.world.later(for_ms, strand.go_on)
            strand.wait()
            if self._is_over or not is_alive():
                raise EndedError
            if not is_paused():
                return
            for_ms = _STEP_MS

    def end(self) -> None:
        """End all jobs."""
        self._is_over = True
        for strand in self._all:
            while not strand.is_over:
                strand.go_on()


@define(eq=False, slots=False)
class VirtualCondition(threading.Condition):
    """A condition whose waits take virtual time."""

    world: World
    sleep: Callable[[int], None]

    def __attrs_pre_init__(self) -> None:
        super().__init__(threading.RLock())

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> bool:  # type: ignore[override]
        """Look again and again, until the condition holds or the time is over."""
        assert timeout is not None
        until_ms = self.world.now_ms + round(1_000 * timeout)
        while not (found := bool(predicate())) and self.world.now_ms < until_ms:
            self.release()
            try:
                self.sleep(min(_STEP_MS, until_ms - self.world.now_ms))
            finally:
                self.acquire()
        return found
