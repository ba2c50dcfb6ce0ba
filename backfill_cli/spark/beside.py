"""A Spark session beside another one: its settings do not affect the other, and both have the same catalogs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog."

_clones: "list[SparkSession]" = []
"""Each holds a connection, which would keep the process from exiting."""


def session_beside(session: "SparkSession") -> "SparkSession":
    """A separate session in the same application; over Spark Connect, a clone of it on the server."""
    clone = getattr(session, "cloneSession", None)
    if clone is not None:
        made: SparkSession = clone()
        # In 4.1.4 a clone lacks an attribute that its own `stop` reads.
        made.__dict__.setdefault("release_session_on_close", True)
        _clones.append(made)
        return made
    made = session.newSession()
    for name, value in session.conf.getAll.items():
        if name.startswith(CATALOG):
            made.conf.set(name, value)
    return made


def end_clones() -> None:
    """All clones are stopped, so that none outlives the session that it was cloned from."""
    while _clones:
        _clones.pop().stop()
