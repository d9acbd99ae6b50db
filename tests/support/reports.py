"""Records of one kind, out of everything that a group writes about itself."""

from collections.abc import Iterable
from typing import TypeVar

from coopgroup.telemetry import Envelope

Kind = TypeVar("Kind")


def reports(telemetry: Iterable[Envelope], kind: type[Kind]) -> list[tuple[Envelope, Kind]]:
    """Return the records of a kind, each beside its envelope."""
    return [(one, one.record) for one in telemetry if isinstance(one.record, kind)]
