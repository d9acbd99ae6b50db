"""Policies decide WHEN a resource moves to where the assignor wants it.

Read in this order:

- `policy`: the three steps of a round, and the values that a policy receives and returns.
- `tables`: all rules, as tables. `stage`: the round that applies them.
- `facts`: why a resource is unclaimed, and which claims were revoked but still exist.
- `losses`: who gets the resources of a departed member, and how long they wait.
- `moves`: which changes of a group justify moves, and which moves come first.
- `balance`: moves only because of lags.
- `built_in`: the policies and their options. `memory`: what the leader remembers between rounds.

`warmth`, `warmups` and `standbys` add warm-ups to any policy. `bundles` moves co-partitioned topics
together. `safety` checks every plan.
"""
