"""A model of Kafka's coordinator of classic groups: pure, in virtual time, one group.

It follows `GroupMetadataManager` and `ClassicGroup` of Kafka 4.x function by function, one module
a request, so that a reader can compare. Deliberately not modelled:

- authorizations, quotas, throttling, the size of a message or of a group (`group.max.size`);
- groups of other kinds: a consumer group of KIP-848, a share or streams group, and the changes
  from one to another;
- a log that cannot be written: an assignment and a commit are stored in the instant in which they
  are accepted, so COORDINATOR_NOT_AVAILABLE after a failed write does not come about;
- deletion of groups and expiry of offsets, so no group is ever Dead;
- transactions (`TxnOffsetCommit`), offsets of unknown topics, sizes of metadata of commits;
- LeaveGroup of several members in one request, and DescribeGroups;
- answers of the time in which a broker loads a group (COORDINATOR_LOAD_IN_PROGRESS): while there is
  no coordinator, look-ups say so and everything else gets no answer;
- the order in which a leader's successor is chosen, which on a broker is that of a hash table.
"""

from coopgroup.simulator.coordinator.answers import refusal
from coopgroup.simulator.coordinator.group import GroupCoordinator
from coopgroup.simulator.coordinator.state import CoordinatorSettings, GroupState, Seat

__all__ = ["CoordinatorSettings", "GroupCoordinator", "GroupState", "Seat", "refusal"]
