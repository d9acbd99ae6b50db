"""The group's thread: the driver of a session, its leader, look-ups, identity and telemetry."""
