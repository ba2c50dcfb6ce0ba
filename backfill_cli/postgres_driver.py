"""Arrow to and from PostgreSQL: connections of the ADBC driver that share what it knows of a server's types."""

from functools import lru_cache
from typing import Any


def connection(dsn: str, autocommit: bool) -> Any:
    """A new connection. The driver asks for all types once a database and process, not for each: 50 to 150 ms.

    Raises the driver's errors, ImportError where it is not installed.
    """
    from adbc_driver_manager import AdbcConnection
    from adbc_driver_postgresql import dbapi

    return dbapi.Connection(_Kept(), AdbcConnection(_known(dsn)), autocommit=autocommit)


class _Kept:
    """A connection closes its database with it: this one stays."""

    def close(self) -> None: ...


@lru_cache(maxsize=8)
def _known(dsn: str) -> Any:
    """The driver's database, which knows the server's types."""
    import adbc_driver_postgresql

    return adbc_driver_postgresql.connect(dsn)
