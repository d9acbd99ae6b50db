"""A member of KIP-848 as a pure state machine, with the events and effects of any member.

The broker assigns, and a heartbeat carries everything: the join, the owned partitions, the
assignment, the leave. `transitions` is the table of states. `machine` takes events, and `requests`
derives the requests to send. `answers` has the meaning of an answer. `bell` hurries heartbeats.
`coopgroup.core.member.machines` chooses between this machine and the classic one.
"""
