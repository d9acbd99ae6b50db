"""Groups for the tests of the live view."""

from __future__ import annotations

from coopgroup.watch.values import GroupView, MemberView, PartitionView

__all__ = ["MEMBERS", "view"]

MEMBERS = (
    MemberView(
        member_id="m-a",
        client_id="a",
        host="10.0.0.1",
        is_coopgroup=True,
        generation=4,
        rate_per_s=250.0,
        partitions=2,
        lag=30,
    ),
    MemberView(member_id="m-b", client_id="b", host="10.0.0.2", instance_id="pod-b"),
)


def view(
    at_s: float = 0.0,
    owners: tuple[str, ...] = ("m-a", "m-a", "m-b"),
    committed: tuple[int, ...] = (10, 20, 30),
    end: int = 40,
    *,
    members: tuple[MemberView, ...] = MEMBERS,
    state: str = "stable",
) -> GroupView:
    return GroupView(
        group="billing",
        at_ms=1_700_000_000_000 + round(1_000 * at_s),
        state=state,
        kind="classic",
        assignor="coopgroup",
        coordinator="broker:9092",
        members=members,
        partitions=tuple(
            PartitionView(
                topic="orders",
                partition=number,
                owner=owner,
                state="owned" if owner else "unowned",
                end=end,
                committed=offset,
                lag=end - offset,
            )
            for number, (owner, offset) in enumerate(zip(owners, committed, strict=True))
        ),
    )
