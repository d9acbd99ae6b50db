"""The Kafka driver: group RPCs, security settings, and later the consumer built on them."""
