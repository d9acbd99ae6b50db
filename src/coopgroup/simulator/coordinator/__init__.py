"""A model of Kafka's coordinator of classic and consumer groups: pure, in virtual time, one group.

It follows `GroupMetadataManager` and `ClassicGroup` of Kafka 4.x function by function, so that a
reader can compare. It deliberately lacks:

- authorization, quotas, throttling, and the size of messages and groups (`group.max.size`);
- share and streams groups; regular expressions of members of KIP-848;
- log failures: an accepted assignment or commit is stored at that moment, so
  COORDINATOR_NOT_AVAILABLE after a failed write does not occur;
- deletion of groups and expiry of offsets, so a group is never Dead;
- transactions (`TxnOffsetCommit`), offsets of unknown topics, and the size of commit metadata;
- LeaveGroup of several members in one request, and DescribeGroups;
- COORDINATOR_LOAD_IN_PROGRESS: without a coordinator, look-ups report this, and other requests get
  no answer;
- the broker's choice of a leader's successor, which follows a hash table.
"""

from coopgroup.simulator.coordinator.answers import refusal
from coopgroup.simulator.coordinator.group import GroupCoordinator
from coopgroup.simulator.coordinator.state import CoordinatorSettings, GroupState, Seat

__all__ = ["CoordinatorSettings", "GroupCoordinator", "GroupState", "Seat", "refusal"]
