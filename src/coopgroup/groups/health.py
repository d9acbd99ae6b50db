"""The work of a group of named resources as the health of its member reads it."""

from __future__ import annotations

from attrs import define

from coopgroup.core.model import ResourceSet
from coopgroup.groups.state import Wish, Work
from coopgroup.groups.work import ResourceWork
from coopgroup.kafka.clock import now_s
from coopgroup.kafka.health.probe import WorkSample
from coopgroup.kafka.health.value import StuckPartition
from coopgroup.kafka.records.commit_meter import CommitMeter


@define(eq=False)
class GroupWork:
    """The work of one group."""

    work: ResourceWork

    def read(self) -> WorkSample:
        """Return the work of this moment."""
        now, works, failure = now_s(), self.work.works(), self.work.failure
        stops = [one for one in works if one.wish is Wish.STOP]
        return WorkSample(
            at_s=now,
            owned=ResourceSet.from_pairs(one.resource for one in works if one.wish is not Wish.END),
            revoking=ResourceSet.from_pairs(one.resource for one in stops),
            revoking_s=max((now - one.began_s for one in stops), default=0.0),
            stuck=tuple(
                _stuck(one, now) for one in works if one.busy and (one.is_changing or not one.runs)
            ),
            failure="" if failure is None else failure.message,
        )

    def look_up_ends(self, quiet: list[tuple[str, int]]) -> None:
        """Do nothing: named resources have no log."""

    def commit_meter(self) -> CommitMeter | None:
        """Return None: named resources have no offsets."""
        return None


def _stuck(work: Work, now: float) -> StuckPartition:
    """Return a resource whose `start` or change has not returned; the limit decides if it hangs."""
    return StuckPartition(
        topic=work.resource.name,
        partition=work.resource.index,
        why="callback",
        since_s=now - work.began_s,
    )
