"""The host of the core on real Kafka: the consumer, the group's thread and its connections."""
