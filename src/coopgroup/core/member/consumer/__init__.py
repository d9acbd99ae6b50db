"""A member of KIP-848 as a pure state machine, with the events and effects of any member.

The broker assigns, and a heartbeat carries everything: the join, the owned partitions, the
assignment, the leave. `machine` takes events, `answers` has the meaning of an answer, `requests`
says which request is due, `bell` hurries the heartbeats, `transitions` is the table of states.
`coopgroup.core.member.machines` chooses between this machine and the classic one.
"""
