"""Rules and values of a backfill: pure, no I/O, no clock, no Spark."""
