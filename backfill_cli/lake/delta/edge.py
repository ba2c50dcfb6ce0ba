"""Where Delta tables are, which opens them at a version, and what errors of the Delta library mean.

By name in a catalog of the session, Spark says where a table is, and its log the rest. It is looked up once per
process: if the name is given to another table meanwhile, the table's id shows it.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import unquote

from deltalake import DeltaTable, exceptions

from backfill_cli.errors import RETRIED, BackfillError, Fatal, Transient, UsageError, in_config, sql
from backfill_cli.formats.listing import Place, place
from backfill_cli.lake.delta import commits
from backfill_cli.model.units import spell_known
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.beside import CATALOG, defined
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.names import backticked
from backfill_cli.spark.object_store import meant, on_s3, one_spelling, store_of

LOG = "_delta_log"
PLACE = "delta:"
NO_TABLE_HINT = f"name the folder that holds {LOG}"

OWN = "spark_catalog"
IMPLEMENTATION = "spark.sql.catalogImplementation"
_NOT_THERE = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE")

Session = Callable[[], SparkSession]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_DEBUG = re.compile(r"\s*(\n\s*0: |: \w+ \{).*", re.DOTALL)
"""A trace of calls, or Rust's notation of a structure, at the end of the library's text."""


class Where(Place):
    """A Delta table's folder. uri: for Spark."""

    __slots__ = ()

    @classmethod
    def of(cls, template: str, table: str) -> "Where":
        """The folder that an option names for one table. Raises UsageError for a pattern."""
        found = place(template, table)
        if found.pattern:
            raise UsageError(
                f"{found.shown}: not a Delta table's folder", "set the path to the table's own folder"
            )
        return cls(found.fs, found.folder, (), found.shown, found.uri, found.local)

    @classmethod
    def at(cls, identity: str) -> "Where":
        """The table with this identity."""
        return cls.of(identity.removeprefix(PLACE), "")

    @property
    def identity(self) -> str:
        """Where the table is, as a text that is unique to it."""
        return PLACE + (os.path.realpath(self.folder) if self.local else one_spelling(self.uri))

    @property
    def library_uri(self) -> str:
        return self.folder if self.local else self.uri

    @property
    def library_options(self) -> dict[str, str] | None:
        return store_of(self.uri).for_delta() if on_s3(self.uri) else None

    def exists(self) -> bool:
        """Whether the folder holds a Delta table."""
        with delta_errors(self.shown):
            return DeltaTable.is_deltatable(self.library_uri, self.library_options)

    def open(self, version: int | None = None) -> DeltaTable:
        """The table at a version, or at the newest.

        Raises UsageError if there is no table, HistoryGone if the log no longer has that version, Fatal for an
        unsupported feature.
        """
        with delta_errors(self.shown):
            try:
                return DeltaTable(self.library_uri, version, self.library_options)
            except exceptions.DeltaError as exc:
                if (fault := commits.found(self, version)) is not None:
                    raise fault from exc
                if isinstance(exc, exceptions.TableNotFoundError):
                    known = spell_known(*self._beside(), which="tables beside it")
                    raise UsageError(f"{self.shown}: no Delta table{known}", NO_TABLE_HINT) from exc
                raise

    def _beside(self) -> tuple[str, list[str]]:
        """The folder's name, and those beside it that hold a table: local ones only, which cost little to list."""
        parent, _, name = self.folder.rstrip("/").rpartition("/")
        with suppress(OSError):  # a help only: the table is missing, whatever is beside it
            if self.local:
                return name, sorted(one for one in os.listdir(parent) if os.path.isdir(f"{parent}/{one}/{LOG}"))
        return name, []

    def read_log(self, version: int) -> bytes:
        """A version's file. Raises FileNotFoundError, and OSError."""
        with self.fs.open_input_stream(self.log_file(version)) as file:
            text: bytes = file.read()
            return text

    def log_file(self, version: int) -> str:
        return f"{self.folder}/{LOG}/{version:020d}.json"


def named_in(text: str, tables: Iterable[Where]) -> Where | None:
    """The table in whose folder a path or URI in an error's text is; None if there is none."""
    for told in (text, unquote(text)):
        found = [table for table in tables if _path_of(table.folder).search(told)]
        if found:
            return max(found, key=lambda table: len(table.folder))
    return None


def _path_of(folder: str) -> re.Pattern[str]:
    """The folder itself or a path below it, and not as a part of another path."""
    return re.compile(rf"(?:^|[^\w.~%+-]){re.escape(folder)}(?:/|[^\w./~%+-]|\.?(?:\s|$))")


@contextmanager
def delta_errors(shown: str) -> Iterator[None]:
    """Any failure of the library inside becomes one of our errors, which names the table."""
    try:
        yield
    except BackfillError:
        raise
    except (exceptions.DeltaError, OSError, ValueError) as exc:
        raise _meaning(shown, exc) from exc


def _meaning(shown: str, exc: Exception) -> BackfillError:
    said = _COLOURS.sub("", str(exc))
    text = " ".join(_DEBUG.sub("", said).split())[:300]
    lower = text.lower()
    if (of_store := meant(shown, said)) is not None:
        return of_store
    if "feature" in lower or "unsupported" in lower:
        return Fatal(
            f"{shown}: a feature of this table is not supported: {text}",
            "drop that feature (ALTER TABLE … DROP FEATURE …), or use a copy of the table without it",
        )
    if "timed out" in lower or "connect" in lower or "reset" in lower:
        return Transient(f"{shown}: {text}", RETRIED)
    return Fatal(
        f"{shown}: its log cannot be read: {text}",
        f"check its path, and this user's rights to {LOG} there; or restore {LOG} from a copy of the table",
    )


def sql_of(name: str) -> str:
    return ".".join(map(backticked, name.split(".")))


def sql_at(where: Where) -> str:
    """The table of a folder."""
    return f"delta.`{where.uri.replace('`', '``')}`"


def located(spark: SparkSession, name: str) -> Where | None:
    """Where the table is; None if the catalog has none. Raises UsageError for a table of another format."""
    require_lasting(spark, name.split(".")[0])
    try:
        detail = spark.sql(f"DESCRIBE DETAIL {sql_of(name)}").select("format", "location").toArrow().to_pylist()
    except Exception as exc:
        if any(text in str(exc) for text in _NOT_THERE):
            return None
        raise _refused(name, exc) from exc
    if detail[0]["format"] != "delta":
        raise UsageError(f"table {name}: its format is {detail[0]['format']}, not delta", "name a Delta table")
    return Where.of(detail[0]["location"], "")


def beside(spark: SparkSession, name: str) -> list[str]:
    """The tables in this table's schema, by their names; none where the catalog does not say."""
    catalog, schema, _ = name.split(".")
    with suppress(Exception):  # whatever it is, the table is missing, which the caller reports
        told = spark.sql(f"SHOW TABLES IN {backticked(catalog)}.{backticked(schema)}").toArrow().to_pylist()
        return [f"{catalog}.{schema}.{one['tableName']}" for one in told if not one["isTemporary"]]
    return []


def schema_folder(spark: SparkSession, name: str) -> str:
    """Where the catalog puts tables of this table's schema. Raises UsageError if it does not say."""
    catalog, schema, _ = name.split(".")
    require_lasting(spark, catalog)
    try:
        told = spark.sql(f"DESCRIBE SCHEMA {backticked(catalog)}.{backticked(schema)}").toArrow().to_pylist()
    except Exception as exc:
        if "SCHEMA_NOT_FOUND" in str(exc):
            schema_sql = f"{backticked(catalog)}.{backticked(schema)}"
            raise UsageError(
                f"table {name}: the catalog has no schema {schema!r}",
                "in Spark SQL: " + sql(f"CREATE SCHEMA {schema_sql}"),
            ) from exc
        raise _refused(name, exc) from exc
    found = next((one["info_value"] for one in told if one["info_name"] == "Location"), "")
    if not found:
        raise UsageError(
            f"table {name}: the catalog does not say where schema {schema!r} is, so there is no place for the "
            "state that the job keeps beside its tables",
            "name the table by its folder",
        )
    return found


def require_lasting(spark: SparkSession, catalog: str) -> None:
    """Raises UsageError for a catalog that the session does not have, or that ends with it."""
    if catalog != OWN and spark.conf.get(CATALOG + catalog, None) is None:
        raise UsageError(
            f"[spark.conf] defines no catalog {catalog!r}{defined(catalog, spark.conf.getAll)}",
            in_config(
                f"correct the catalog's name, or define it in [spark.conf]: '{CATALOG}{catalog}' = …; or name the "
                "table by its folder"
            ),
        )
    if catalog == OWN and spark.conf.get(IMPLEMENTATION, "in-memory") == "in-memory":
        raise UsageError(
            f"Spark's own catalog, {OWN}, is kept in memory here, and is lost when the session ends",
            in_config(
                f"set [spark.conf] '{IMPLEMENTATION}' = 'hive', with its metastore; or name the table by its "
                "folder"
            ),
        )


def _refused(name: str, exc: Exception) -> Exception:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(exc, PySparkException | Py4JError):
        return exc
    return Fatal(
        f"table {name}: its catalog refuses: {cause_in(str(exc))}",
        in_config(
            f"correct what [spark.conf] says of it ('{CATALOG}{name.split('.')[0]}' and its properties), "
            "or what this user may do there; or name the table by its folder"
        ),
    )
