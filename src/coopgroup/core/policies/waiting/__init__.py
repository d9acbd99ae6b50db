"""The parts of a waiting policy's round, shared by `DeferredPolicy` and `IncrementalPolicy`."""
