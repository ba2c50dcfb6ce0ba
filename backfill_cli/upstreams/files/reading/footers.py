"""Footers of Parquet files."""

from typing import Any

from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import reading

THREADS = 16
"""Footers read at once: they are waits, on remote file systems above all."""


def footer(where: Place, file: File) -> Any:
    """A Parquet file's metadata (pyarrow.parquet.FileMetaData). Raises BadData naming a file that is not whole."""
    import pyarrow.parquet as pq

    with reading(file.path, "parquet"):
        return pq.read_metadata(file.path, filesystem=where.fs)


def group_rows(footer: Any) -> tuple[int, ...]:
    """The rows of each row group: writers are known that leave out the count of the whole file."""
    return tuple(footer.row_group(i).num_rows for i in range(footer.num_row_groups))
