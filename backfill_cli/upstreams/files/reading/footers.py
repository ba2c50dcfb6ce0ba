"""The footers of Parquet files: how many rows they have, and what their statistics say."""

from typing import Any

from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import reading

THREADS = 16
"""Footers read in parallel: reading one is mostly waiting, above all on remote file systems."""


def footer(where: Place, file: File) -> Any:
    """A Parquet file's metadata (pyarrow.parquet.FileMetaData). Raises BadData naming an incomplete file."""
    import pyarrow.parquet as pq

    with reading(file.path, "parquet"):
        return pq.read_metadata(file.path, filesystem=where.fs)


def group_rows(footer: Any) -> tuple[int, ...]:
    """The rows of each row group; some writers omit the count for the whole file."""
    return tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))


def statistics_of(footer: Any, column: str) -> list[Any]:
    """A column's statistics in each row group, None where there are none; empty if the file lacks the column."""
    names = leaves(footer)
    if column not in names:
        return []
    index = names.index(column)
    return [footer.row_group(i).column(index).statistics for i in range(footer.num_row_groups)]


def leaves(footer: Any) -> list[str]:
    """The columns that hold values: those within nested ones have dots in their names."""
    return [footer.schema.column(i).path for i in range(footer.num_columns)]
