"""A live view of a group of any client: members, partitions, lags and moves.

The brokers tell everything here: the description of the group, its committed offsets, and the ends
of its logs. Members of coopgroup tell more in their subscriptions: generation and rate.
"""
