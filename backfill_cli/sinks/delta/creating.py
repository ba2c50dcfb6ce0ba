"""Creates the sink's tables that are missing, and adds missing columns."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from backfill_cli.errors import BackfillError, Transient, UsageError, in_config
from backfill_cli.formats.frames import struct_type
from backfill_cli.lake.delta.edge import Where, delta_errors
from backfill_cli.lake.delta.names import sql_at, sql_of
from backfill_cli.lake.merge import literal
from backfill_cli.lake.options import blamed
from backfill_cli.model.schema import Columns, schema_text
from backfill_cli.sinks.delta.tables import Lacking, Unplaced
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.failures import cause_in

if TYPE_CHECKING:
    from deltalake import Schema

PROBE = "backfill/created"
_OTHER_WRITER = ("CHANGED", "CONCURRENT", "ConcurrentModification")


def create(missing: Sequence[Lacking], properties: Mapping[str, str], session: Callable[[], SparkSession]) -> None:
    """The tables exist with all their columns; new ones have these properties, side tables none.

    Raises UsageError for properties with which a table cannot be created or written; then none was created.
    """
    made: list[Lacking] = []
    for one in missing:
        if not one.create:
            if one.columns:
                _add(one, session)
        elif properties and not one.table.side:
            try:
                if _created_by_spark(one, properties, session()):
                    made.append(one)
                    _require_writable(one)
            except UsageError:
                for unused in made:
                    _remove(unused, session())
                raise
        else:
            _create(one, session)


def _create(lack: Lacking, session: Callable[[], SparkSession]) -> None:
    """By the library, without a Spark job, unless the catalog has to place the table."""
    from deltalake import DeltaTable

    where = lack.where
    if isinstance(where, Unplaced):
        spark = session()
        spark.sql(f"CREATE TABLE IF NOT EXISTS {sql_of(where.shown)} ({_ddl(lack.columns)}) USING delta")
        return
    with delta_errors(where.shown):
        schema, options = _schema(lack.columns), where.library_options
        DeltaTable.create(where.library_uri, schema, mode="ignore", storage_options=options)


def _created_by_spark(lack: Lacking, properties: Mapping[str, str], spark: SparkSession) -> bool:
    """Spark knows all properties and what they demand of a table. False if another process was quicker."""
    told = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
    try:
        spark.sql(f"CREATE TABLE {_name(lack)} ({_ddl(lack.columns)}) USING delta TBLPROPERTIES ({told})")
    except Exception as exc:
        with suppress(BackfillError):
            if lack.where.exists() or (isinstance(lack.where, Unplaced) and "ALREADY_EXISTS" in str(exc)):
                return False
        raise _refusal(lack.where, exc, properties) or exc from exc
    return True


def _refusal(where: Where, exc: Exception, properties: Mapping[str, str]) -> BackfillError | None:
    """Our error if Delta understood the statement and refused it, rather than failed to carry it out."""
    from pyspark.errors import AnalysisException, IllegalArgumentException

    text = str(exc)
    said = next((line[:300] for line in text.splitlines() if "[DELTA_" in line), cause_in(text))
    if any(part in said for part in _OTHER_WRITER):
        return Transient(f"{where.shown}: another process is creating the table: {said}", "type the command again")
    if "ALREADY_EXISTS" in text:
        return UsageError(
            f"{where.shown}: the folder has files, but no Delta table", "name another folder, or remove the files"
        )
    if "DELTA_" in text or isinstance(exc, AnalysisException | IllegalArgumentException):
        return UsageError(
            f"{where.shown}: Delta refuses to create the table: {said}{blamed(text, properties)}",
            in_config("correct sink.properties in the config"),
        )
    return None


def _require_writable(lack: Lacking) -> None:
    """Raises UsageError if the library, which writes commits without rows, cannot write to the new table."""
    from deltalake import CommitProperties, Transaction, exceptions

    if isinstance(lack.where, Unplaced):
        return
    table = lack.where.open()
    how = CommitProperties(app_transactions=[Transaction(PROBE, 1)])
    try:
        table.create_write_transaction([], "append", table.schema(), commit_properties=how)
    except exceptions.DeltaError as exc:
        raise UsageError(
            f"{lack.where.shown}: with these properties, commits cannot be written without Spark: {exc}",
            in_config("remove from sink.properties what demands more of every writer"),
        ) from exc


def _remove(lack: Lacking, spark: SparkSession) -> None:
    """A table that this process created, in a folder without files, is gone again."""
    if isinstance(lack.where, Unplaced):
        spark.sql(f"DROP TABLE IF EXISTS {_name(lack)}")
    else:
        lack.where.place.fs.delete_dir(lack.where.place.folder)


def _name(lack: Lacking) -> str:
    return sql_of(lack.where.shown) if isinstance(lack.where, Unplaced) else sql_at(lack.where)


def _ddl(columns: Columns) -> str:
    return str(struct_type(_bare(columns)).toDDL())


def _add(lack: Lacking, session: Callable[[], SparkSession]) -> None:
    """The table has the new columns, NULL in existing rows."""
    from deltalake import exceptions

    with delta_errors(lack.where.shown):
        try:
            lack.where.open().alter.add_columns(list(_schema(lack.columns).fields))
        except exceptions.DeltaError:  # deltalake cannot with column mapping, Spark can
            rows = session().createDataFrame([], struct_type(_bare(lack.columns)))
            rows.write.format("delta").mode("append").option("mergeSchema", "true").save(lack.where.uri)


def _schema(columns: Columns) -> "Schema":
    from deltalake import Schema

    return Schema.from_json(schema_text(_bare(columns)))


def _bare(columns: Columns) -> Columns:
    """The columns nullable, and without the engine's metadata, which is not for the table."""
    return {name: {**one, "nullable": True, "metadata": {}} for name, one in columns.items()}
