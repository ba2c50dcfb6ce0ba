"""Inspects files for `backfill init`: metadata and a sample, read by DuckDB. A job's rows are never read here."""
