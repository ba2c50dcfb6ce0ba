"""A Spark session beside another one: its settings do not affect the other, and both have the same catalogs."""

from collections.abc import Mapping

from backfill_cli.model.units import spell_known
from backfill_cli.spark.api import SparkSession

CATALOG = "spark.sql.catalog."

_clones: list[SparkSession] = []
"""Each holds a connection, which would keep the process from exiting."""


def session_beside(session: SparkSession) -> SparkSession:
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


def defined(name: str, conf: Mapping[str, str]) -> str:
    """`; it defines: lake, mart`, those most similar to `name` first; nothing if a config defines no catalog.

    Neither our own catalogs nor Spark's own, which a session may have without a setting of the config.
    """
    found = {key.removeprefix(CATALOG).split(".")[0] for key in conf if key.startswith(CATALOG)}
    named = sorted(one for one in found if one != "spark_catalog" and not one.startswith("backfill_"))
    return spell_known(name, named, which="it defines")


def end_clones() -> None:
    """All clones are stopped, so that none outlives the session that it was cloned from."""
    while _clones:
        _clones.pop().stop()
