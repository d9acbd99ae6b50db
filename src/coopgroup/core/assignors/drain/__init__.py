"""Assignment by drain time: all members finish their backlog at the same time."""
