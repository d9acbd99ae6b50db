"""History of running groups, their episodes, sweeps and advice, on Spark.

Needs the extra `spark` and Java 17. Nothing else of coopgroup imports this package but the command
line. `session` makes the session that every job is given, `schemas` says what the tables hold,
`tables` writes and reads them; the jobs are in `history`, `lag`, `telemetry` and `episodes`.
"""
