"""The config that `backfill init` writes: every option of a first job, explained."""

TEMPLATE = """\
# A backfill job. Check it:   backfill plan --config job.toml
# Run it:                     backfill start --config job.toml
# Every option:               backfill config schema, and docs/config.md

[job]
name = "orders"                      # in the catalog and in commands: a-z, 0-9, _ and -
# strategy = "auto"                  # auto chooses; plan says which and why
# staging = ".backfill/staging"      # a cluster needs a path that driver and executors share

[upstream]
type = "files"
# The load to start from: a folder or a glob of parquet, json (one object per line) or csv.
snapshot = { path = "data/orders/snapshot", format = "parquet" }
# Where change files land, read in name order: debezium, dms or change-feed.
changes = { path = "data/orders/changes", format = "debezium" }
# When the load was not taken at one point of the change log, name the change files around it:
# snapshot.as_of: the last one finished before the load began; snapshot.complete_at: the first one
# finished after it ended. Without as_of every change file is replayed.

[[tables]]                           # one of these a table; with several, the paths hold {table}
name = "orders"
key = ["id"]                         # the columns that identify a row
# target = "main.orders"             # the sink's table; default: the name

[sink]
type = "duckdb"
path = "warehouse.duckdb"

# [transform]                        # Spark SQL over one row; a [tables.transform] replaces it for its table
# select = ["id", "upper(status) AS status", "amount"]   # key columns stay as they are, renamed at most
# where = "amount > 0"               # a row that no longer meets it is deleted from the sink

# [barrier]
# interval = "1s"                    # shortest time between barriers when live
# target = "5s"                      # when behind: how long an epoch should take

# [throttle]
# rate = 20000                       # rows per second of snapshot reads; later: backfill throttle --rate 500

# [catch_up]
# measure = "time"                   # time | barriers

# [retry]
# limit = "10m"                      # how long a temporary failure is retried

# [spark]
# master = "local[*]"                # or remote = "sc://host:15002"
# conf = { "spark.driver.memory" = "2g" }

# Secrets are written as references, never as values: "${env:NAME}" or "${file:/path}".
"""
