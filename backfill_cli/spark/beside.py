"""A Spark session beside another one: what is set in it disturbs nobody, and both have the same catalogs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog."

_clones: "list[SparkSession]" = []
"""Each holds a connection, which would keep the process from its end."""


def session_beside(session: "SparkSession") -> "SparkSession":
    """A session of its own, in the same application; over Spark Connect a clone of it on the server."""
    clone = getattr(session, "cloneSession", None)
    if clone is not None:
        made: SparkSession = clone()
        # A clone of 4.1.4 lacks what its own `stop` asks for.
        made.__dict__.setdefault("release_session_on_close", True)
        _clones.append(made)
        return made
    made = session.newSession()
    for name, value in session.conf.getAll.items():
        if name.startswith(CATALOG):
            made.conf.set(name, value)
    return made


def end_clones() -> None:
    """No session beside another one is left that would outlive it."""
    while _clones:
        _clones.pop().stop()
