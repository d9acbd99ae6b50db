"""Level a load by few moves: the engine of the assignors that read lags or weights.

Members are machines and partitions are jobs. A member has a load and a speed; its time is load /
speed. The longest time should be short. This is the problem of uniform parallel machines (Q||Cmax).

- `longest_first` places free partitions: longest processing time first (LPT; Gonzalez, Ibarra,
  Sahni, 1977).
- `bulk` moves many partitions in one step where the shares of members differ.
- `exchange` moves single partitions, or exchanges one for another, where single partitions matter.
  `steps` finds the best step of a pair.
- `pools` does this for all pools of a group in turn.

The assignors differ only in weights, speeds and limits: `lag-aware` keeps the counts of members
(KAFKA-5337) and exchanges lags, `drain-time` lets counts follow the speeds, and `weighted` levels
connectors and tasks separately.

Two searches for moves are different problems. The lag balance of policies (`policies.balance`)
takes a few steps towards the target of any assignor, so it may choose only moves that
the target also wants. Module `quotas` levels counts: all resources weigh the same, so it finds the
optimum by arithmetic instead of by search.
"""
