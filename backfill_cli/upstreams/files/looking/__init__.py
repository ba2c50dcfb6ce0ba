"""What files look like, for `backfill init`: metadata and a sample, read by DuckDB, and never a row of a job's."""
