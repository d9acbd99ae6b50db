"""Groups that share named resources instead of partitions, and leadership among processes."""

from coopgroup.groups.callbacks import WorkFailure
from coopgroup.groups.catalogue import Catalogue, GroupResource
from coopgroup.groups.group import CooperativeGroup
from coopgroup.groups.leadership import Leadership
from coopgroup.groups.peers import Peer
from coopgroup.groups.topic import CatalogueTopic

__all__ = [
    "Catalogue",
    "CatalogueTopic",
    "CooperativeGroup",
    "GroupResource",
    "Leadership",
    "Peer",
    "WorkFailure",
]
