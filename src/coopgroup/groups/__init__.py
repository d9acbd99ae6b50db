"""Groups that share named resources instead of partitions, and leadership among processes."""

from coopgroup.groups.callbacks import WorkFailure
from coopgroup.groups.catalogue import Catalogue
from coopgroup.groups.group import CooperativeGroup
from coopgroup.groups.leadership import Leadership

__all__ = ["Catalogue", "CooperativeGroup", "Leadership", "WorkFailure"]
