"""Episodes of groups: rebalances, outages, absences and uneven lag."""
