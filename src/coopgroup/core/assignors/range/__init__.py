"""Range assignment: each topic is cut into ranges, one for each subscriber."""
