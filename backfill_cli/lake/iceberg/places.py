"""Where an Iceberg table is: in its own folder (a Hadoop table), or under a name in one of Spark's catalogs."""

import glob
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backfill_cli.errors import Hint, UsageError, in_config, sql
from backfill_cli.formats.listing import local_path
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.beside import CATALOG, defined
from backfill_cli.spark.names import backticked, literal
from backfill_cli.spark.object_store import one_spelling

NO_PLACE = "a folder, with a '/' in it (such as './orders' in this folder), or catalog.schema.table"
SHOWN_CATALOG = "lake"
"""In statements shown to users: the name of a catalog of folders, which the session knows by a hash."""

SPARK_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


@dataclass(frozen=True, slots=True)
class Place:
    """folder: the parent of the table's own folder; None for a table of the session's catalog `catalog`.

    names: namespace and table.
    """

    catalog: str
    names: tuple[str, ...]
    folder: str | None = None

    @classmethod
    def of(cls, table: str) -> "Place":
        """table: a path or URI with a `/`, or catalog.schema.table. Raises UsageError for anything else."""
        if "/" in table:
            folder, _, name = _absolute(table).rpartition("/")
            if not name:
                raise UsageError(f"table: {table} names no table", "name the table's own folder")
            return cls(f"backfill_{hashlib.sha256(folder.encode()).hexdigest()[:12]}", (name,), folder or "/")
        catalog, *names = table.split(".")
        if not names or not all((catalog, *names)):
            raise UsageError(
                "table: neither a path, which has a '/', nor catalog.schema.table",
                "write ./orders for a table in this folder, or put a catalog's name before it",
            )
        return cls(catalog, tuple(names))

    @property
    def sql(self) -> str:
        """The table's name in Spark's SQL, once `register` was called."""
        return ".".join(map(backticked, (self.catalog, *self.names)))

    def procedure(self, name: str, arguments: str) -> str:
        """A procedure's call in Spark's SQL, once `register` was called."""
        table = literal(self.in_catalog)
        return f"CALL {backticked(self.catalog)}.system.{name}(table => {table}, {arguments})"

    @property
    def in_catalog(self) -> str:
        """The table's name as a procedure's argument: without the catalog."""
        return ".".join(map(backticked, self.names))

    @property
    def path(self) -> str:
        """The folder of a table that has one."""
        assert self.folder is not None
        return "/".join((self.folder.rstrip("/"), *self.names))

    def in_spark(self, *statements: str) -> Hint:
        """The statements of a hint, after the catalog in which they can be typed as they are."""
        where = f"in Spark, with a catalog {SHOWN_CATALOG} of type hadoop whose warehouse is {self.folder}: "
        return ("" if self.folder is None else where) + sql(*statements)

    def alter(self, what: str) -> str:
        """An ALTER TABLE, as shown to users after `in_spark`."""
        return f"ALTER TABLE {self._shown_name} {what}"

    def rows_at(self, snapshot: int) -> str:
        """A query of the rows of a snapshot, as shown to users after `in_spark`."""
        return f"SELECT * FROM {self._shown_name} VERSION AS OF {snapshot}"

    def call(self, procedure: str, arguments: str = "") -> str:
        """A procedure's call, as shown to users after `in_spark`."""
        more = f", {arguments}" if arguments else ""
        catalog = backticked(self._shown_catalog)
        return f"CALL {catalog}.system.{procedure}(table => '{self.in_catalog}'{more})"

    @property
    def _shown_name(self) -> str:
        return ".".join(map(backticked, (self._shown_catalog, *self.names)))

    @property
    def _shown_catalog(self) -> str:
        return self.catalog if self.folder is None else SHOWN_CATALOG

    def __str__(self) -> str:
        return self.path if self.folder is not None else ".".join((self.catalog, *self.names))

    def beside(self, name: str) -> "Place":
        return Place(self.catalog, (*self.names[:-1], name), self.folder)

    def register(self, spark: SparkSession) -> None:
        """This session knows the table's catalog, and does not cache its tables: other writers change them."""
        at = CATALOG + self.catalog
        if self.folder is not None:
            spark.conf.set(at, SPARK_CATALOG)
            spark.conf.set(f"{at}.type", "hadoop")
            spark.conf.set(f"{at}.warehouse", self.folder)
        elif spark.conf.get(at, None) is None:
            raise no_catalog(self.catalog, spark.conf.getAll)
        spark.conf.set(f"{at}.cache-enabled", "false")
        # Otherwise a key's NOT NULL would be lost when a table is created from a frame.
        spark.conf.set(f"{at}.use-nullable-query-schema", "false")


def is_table(told: str) -> bool:
    """Whether a local folder is such a table already; another one does not show what it is to be."""
    return "\0" not in told and bool(glob.glob(os.path.join(glob.escape(told), "metadata", "*.metadata.json")))


def require_place(told: str) -> None:
    """Raises ValueError for an option that names no table."""
    try:
        Place.of(told)
    except UsageError:
        raise ValueError(NO_PLACE) from None


def no_catalog(name: str, conf: Mapping[str, str]) -> UsageError:
    """The error for a catalog without settings."""
    at = CATALOG + name
    return UsageError(
        f"[spark.conf] defines no catalog {name!r}{defined(name, conf)}",
        in_config(
            f"correct the catalog's name, or define it in [spark.conf]: '{at}' = '{SPARK_CATALOG}', '{at}.type' = "
            "…; or name a folder, with a '/'"
        ),
    )


def catalog_properties(name: str, conf: Mapping[str, str]) -> dict[str, str]:
    """The session's settings of a catalog: `spark.sql.catalog.NAME.*` without that prefix."""
    prefix = f"{CATALOG}{name}."
    return {key[len(prefix) :]: value for key, value in conf.items() if key.startswith(prefix)}


def template(text: str, target: str) -> str:
    """The table that `table = "…{table}…"` names for one of the job's targets."""
    return text.replace("{table}", target)


Settings = Callable[[], Mapping[str, str]]
"""Returns the session's settings; starts a session if there is none yet."""


def settings_of(session: Callable[[], SparkSession]) -> Settings:
    def told() -> Mapping[str, str]:
        every: Mapping[str, str] = session().conf.getAll
        return every

    return told


def _absolute(path: str) -> str:
    path = local_path(path)
    return one_spelling(path) if "://" in path else os.path.realpath(path)
