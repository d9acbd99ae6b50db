"""History of running groups, their episodes, sweeps and advice, on Spark.

This package needs the extra `spark` and Java 17. Within coopgroup only the command line imports
it. `session` creates the Spark session of every job. `schemas` defines the tables, and `tables`
writes and reads them. `upkeep` converts and compacts them. The jobs are in `history`, `lag`,
`telemetry` and `episodes`.
"""
