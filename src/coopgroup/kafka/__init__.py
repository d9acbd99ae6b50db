"""The host of the core on real Kafka: the consumer, the group's thread and its connections."""

from coopgroup.kafka.late_packages import LATE_PACKAGES, postpone

postpone(LATE_PACKAGES)
