"""The health of one member, read from any thread without waiting."""
