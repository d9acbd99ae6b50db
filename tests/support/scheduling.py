"""Distribution of tests over several processes (`make pytest`).

Tests on brokers mostly wait, and some of them measure time. So most processes run them. With three
or more processes one runs what computes, Spark first, at a low priority: it takes the time that the
others leave, and a test that measures time hardly notices it. With four or more processes the last
one runs quick tests, at the same low priority, and ends after them. Longer tests could exceed their
time limit there.

Spark uses both cores, so with fewer processes its tests do not run beside brokers while other tests
remain.
"""

import os
from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

ON_BROKERS: Final = ("broker", "interop", "chaos")
ON_SPARK: Final = "spark"
_QUICK: Final = ("architecture", "deploy", "unit")
# A long file at the end would keep one process busy while the others have nothing left.
LONG_FILES: Final = frozenset(
    f"tests/{ON_SPARK}/test_{name}.py"
    for name in (
        *("commands", "follow", "history", "increments", "lag", "pipeline_page", "sweep_run"),
        *("tables", "upkeep"),
    )
)
_WITH_SPARK: Final = 3
_WITH_QUICK: Final = 4
_NICENESS: Final = 10


class FolderScheduling(LoadScopeScheduling):
    """Hand out the tests by file; each process has one broker that its tests share.

    Files on Spark go to a process with a running Spark. If no other files are left, another process
    takes some too: that is quicker than to wait for the first.
    """

    def _split_scope(self, nodeid: str) -> str:
        return nodeid.partition("::")[0]

    def _reschedule(self, node: WorkerController) -> None:
        kind = _kind(self.numnodes, node.gateway.id)
        if any(_may_run(kind, _folder(one)) for one in self.workqueue):
            super()._reschedule(node)
        else:
            node.shutdown()

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [scopes for other, scopes in self.assigned_work.items() if other is not node]
        elsewhere = [one for scopes in others for one in scopes if not all(scopes[one].values())]
        computing = [one for one in self.workqueue if not _is_on_brokers(one)]
        on_spark = [one for one in computing if _folder(one) == ON_SPARK]
        quick = [one for one in computing if _folder(one) in _QUICK]
        kind = _kind(self.numnodes, node.gateway.id)
        if kind:
            wanted = on_spark if kind == ON_SPARK else quick
            for scope in reversed(wanted or computing):
                self.workqueue.move_to_end(scope, last=False)
        else:
            on_brokers = any(map(_is_on_brokers, (*self.workqueue, *elsewhere)))
            is_last = on_brokers or ON_SPARK in map(_folder, elsewhere)
            for scope in on_spark if is_last else reversed(on_spark):
                self.workqueue.move_to_end(scope, last=is_last)
            for scope in reversed([one for one in self.workqueue if _is_on_brokers(one)]):
                self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def yield_to_brokers() -> None:
    """Lower the priority of this process if it computes from the start."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if _kind(workers, os.environ.get("PYTEST_XDIST_WORKER", "gw0")):
        os.nice(_NICENESS)


def _kind(workers: int, worker: str) -> str:
    """Return the first folder of a process in the background; "" for the other processes."""
    last = int(worker.removeprefix("gw")) - workers
    if workers >= _WITH_QUICK:
        return {-2: ON_SPARK, -1: _QUICK[0]}.get(last, "")
    return ON_SPARK if workers >= _WITH_SPARK and last == -1 else ""


def _may_run(kind: str, folder: str) -> bool:
    """Return whether a process of a kind goes on if only this folder is left."""
    if kind == _QUICK[0]:
        return folder in _QUICK
    return kind != ON_SPARK or folder not in ON_BROKERS


def _is_on_brokers(scope: str) -> bool:
    return _folder(scope) in ON_BROKERS


def _folder(scope: str) -> str:
    """Return the folder of a scope: `broker` of `broker`, `spark` of `tests/spark/test_lag.py`."""
    return scope.removeprefix("tests/").partition("/")[0]
