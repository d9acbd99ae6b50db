"""Distribution of tests over several processes (`make pytest`).

Tests on brokers depend on clocks, and Spark uses both cores, so these two kinds do not run in
parallel while other tests remain. Tests that only compute run beside either.
"""

from typing import Final

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

__all__ = ["ON_BROKERS", "ON_SPARK", "FolderScheduling"]

ON_BROKERS: Final = ("broker", "interop", "chaos")
ON_SPARK: Final = "spark"


class FolderScheduling(LoadScopeScheduling):
    """Hand out a folder of broker tests as a whole, so that they share a broker; others by file.

    Files on Spark go to a process with a running Spark. If no other files are left, another process
    takes some too: that is quicker than to wait for the first.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return _folder(path) if _folder(path) in ON_BROKERS else path

    def _assign_work_unit(self, node: WorkerController) -> None:
        others = [scopes for other, scopes in self.assigned_work.items() if other is not node]
        elsewhere = [one for scopes in others for one in scopes if not all(scopes[one].values())]
        servers = {_folder(one) for one in (*self.workqueue, *elsewhere)} & {*ON_BROKERS}
        is_last = bool(servers) or ON_SPARK in map(_folder, elsewhere)
        for scope in [one for one in self.workqueue if _folder(one) == ON_SPARK]:
            self.workqueue.move_to_end(scope, last=is_last)
        super()._assign_work_unit(node)


def _folder(scope: str) -> str:
    """Return the folder of a scope: `broker` of `broker`, `spark` of `tests/spark/test_ends.py`."""
    return scope.removeprefix("tests/").partition("/")[0]
