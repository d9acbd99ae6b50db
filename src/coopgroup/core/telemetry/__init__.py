"""What happened in a group, as frozen records in one versioned schema."""
