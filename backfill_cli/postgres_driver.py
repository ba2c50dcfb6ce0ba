"""Arrow to and from PostgreSQL: ADBC connections that share the driver's knowledge of a server's types."""

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def connection(dsn: str, autocommit: bool) -> Any:
    """A new connection. The driver reads all types once per database and process, not each time: 50 to 150 ms.

    Raises the driver's errors, or ImportError if it is not installed.
    """
    from adbc_driver_manager import AdbcConnection
    from adbc_driver_postgresql import dbapi

    return dbapi.Connection(_Kept(), AdbcConnection(_known(dsn)), autocommit=autocommit)


def batches(cursor: Any) -> "Iterator[pa.RecordBatch]":
    """The rows of the query that the cursor executed. Raises the driver's errors, with their SQLSTATE.

    The reader of `fetch_record_batch` is pyarrow's own: what the server says in the middle of the rows, or a lost
    connection, is an OSError there.
    """
    from adbc_driver_manager._reader import AdbcRecordBatchReader

    stream = cursor.fetch_arrow()
    yield from AdbcRecordBatchReader._import_from_c(stream.address)


class _Kept:
    """Stands in for a connection's database, which closing the connection would close too: it stays open."""

    def close(self) -> None: ...


@lru_cache(maxsize=8)
def _known(dsn: str) -> Any:
    """The driver's database object, which has read the server's types."""
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(dsn)
