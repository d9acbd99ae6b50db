"""`TopicMetadata`: the existing resources, which the host of a leader looks up for a round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coopgroup.core.model.resource_set import Int64Array, ResourceSet


@frozen(kw_only=True)
class TopicMetadata:
    """The existing resources, as the leader sees them.

    Attributes:
        resources: every resource of the subscribed names.
        racks: racks of each resource's replicas by name and index; None if unknown.
        weights: int64, the catalogue's weights in the order of `resources`; None for partitions.
    """

    resources: ResourceSet
    racks: Mapping[str, Mapping[int, Sequence[str]]] | None = None
    weights: Int64Array | None = None
