"""The sink's tables: where they are, what is missing according to their logs, which can go; and creates them."""

import json
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from deltalake import CommitProperties, DeltaTable, Schema, Transaction, exceptions
from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.refusals import IF_BEGUN, belongs_to, gone, require_key, rows_of_others
from backfill_cli.errors import (
    BackfillError,
    BadData,
    StateConflict,
    Transient,
    UsageError,
    in_config,
    sql,
    start_over,
)
from backfill_cli.formats.frames import struct_type
from backfill_cli.formats.listing import place
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta import FORGETS
from backfill_cli.lake.delta.edge import (
    Session,
    Where,
    delta_errors,
    located,
    schema_folder,
    sql_at,
    sql_of,
)
from backfill_cli.lake.options import blamed
from backfill_cli.lake.sink import missing_columns
from backfill_cli.lake.state import FOLDER, Claim, JobRecord, JobState, jobs
from backfill_cli.model.schema import Columns, columns_of, fields_of, schema_text, shown
from backfill_cli.sinks.delta.marks import MarkedTable, marks_of
from backfill_cli.spark.api import SparkSession
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.names import as_text, in_select, literal, plain

TABLE = "{table}"
PROBE = "backfill/created"
_OTHER_WRITER = ("CHANGED", "CONCURRENT", "ConcurrentModification")
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_KEPT = (*_NUMBERS, "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
"""Types that a Delta table stores without change; so are decimals."""


class Unplaced(Where):
    """A table that the session's catalog does not have yet, and will place when it is created."""

    __slots__ = ()

    @classmethod
    def called(cls, name: str) -> "Unplaced":
        return cls(LocalFileSystem(), "", (), name, name.lower(), False)  # Spark's catalogs ignore case

    def exists(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Lacking:
    """What one table lacks. columns: those to add; all of them if `create`."""

    table: SinkTable
    where: Where
    columns: Columns
    create: bool


class Tables(ABC):
    """The tables that the sink's option names, and the folder with the state of all jobs that fill them."""

    def __init__(self, template: str) -> None:
        self._template = template

    @abstractmethod
    def where(self, table: SinkTable) -> Where:
        """Where a table is. Without {table} in the option, a side table is beside the job's table."""

    @abstractmethod
    def _root(self) -> str:
        """The folder that the state is in, the same for all tables that the option can name."""

    @abstractmethod
    def sql(self, table: SinkTable) -> str:
        """The table's name in Spark's SQL."""

    @abstractmethod
    def gone(self, table: SinkTable) -> None:
        """The table's folder was deleted."""

    @cached_property
    def state(self) -> Blobs:
        found = place(f"{self._root()}/{FOLDER}", "")
        return Blobs(found.fs, found.folder)

    def marked(self, job: str, table: SinkTable, claim: Claim) -> MarkedTable:
        """The table that the job has claimed, where the option names it."""
        return MarkedTable(job, table.name, claim, self.where(table), marks_of(self.state, job, claim))

    def check(self, job: str, tables: Sequence[SinkTable], into_existing: bool) -> list[Lacking]:
        """What `prepare` would create; writes nothing. Raises for tables that the job cannot write to."""
        records = jobs(self.state)
        own = next((one for one in records if one.job == job), JobRecord(job))
        lacking = []
        for table in tables:
            _require_types(table)
            where, claim = self.where(table), own.claims.get(table.name)
            refuse_other_owner(records, job, table, where)
            if claim is None:
                _refuse_link(where)
            marker = None if claim is None else self.marked(job, table, claim).marker()
            lost = claim is not None and marker is None and table.name not in own.dropped and not table.derived
            if lost and JobState(self.state, job).newest_epoch():
                raise gone(where.shown, job)
            ours = into_existing or (marker is not None and marker.epoch > 0)
            lacking.append(_missing(table, where, ours))
        return lacking

    def claim(self, job: str, tables: Sequence[SinkTable]) -> None:
        """The tables are claimed by the job; writes nothing if they were before."""
        JobState(self.state, job).change(lambda record: self._claimed(record, tables))

    def _claimed(self, known: JobRecord, tables: Sequence[SinkTable]) -> JobRecord:
        new = [table for table in tables if table.name not in known.claims or table.name in known.dropped]
        if not new:
            return known
        held = [self.marked(known.job, t, known.claims[t.name]) for t in tables if t.name in known.claims]
        token = max([marker.token for one in held if (marker := one.marker()) is not None], default=0)
        claims = {t.name: Claim(self.where(t).identity, uuid.uuid4().hex[:12], token) for t in new}
        dropped = {name: marker for name, marker in known.dropped.items() if name not in claims}
        return JobRecord(known.job, {**known.claims, **claims}, known.owner, dropped, known.layout)

    def droppable(self, tables: Sequence[SinkTable]) -> list[Where]:
        """The places of those of the tables that exist, before they are dropped.

        A name alone makes none the job's: raises StateConflict for a table that no job has claimed, and for one
        that replaced a claimed one, as it has rows, but its log has no number of the job.
        """
        records = jobs(self.state)
        found = [(table, where) for table in tables if (where := self.where(table)).exists()]
        for table, where in found:
            if not any(self._is_of(record, table, where) for record in records):
                raise StateConflict(
                    f"{where.shown}, the place of table {table.name!r}, now has a table that the job did not "
                    "fill; nothing is dropped",
                    "restore the job's table there; or omit --with-rows, and delete by hand what is no longer "
                    "needed",
                )
        return [where for _, where in found]

    def _is_of(self, record: JobRecord, table: SinkTable, where: Where) -> bool:
        claim = record.claims.get(table.name)
        if claim is None or claim.place != where.identity:
            return False
        held = self.marked(record.job, table, claim)
        return held.is_numbered() or not where.open().get_add_actions().num_rows


class Folders(Tables):
    """Tables by the path of their folders."""

    def where(self, table: SinkTable) -> Where:
        if TABLE in self._template or not table.side:
            return Where.of(self._template, table.target)
        return Where.of(f"{_parent(self._template)}/{table.target}", table.target)

    def _root(self) -> str:
        before, found, _ = self._template.partition(TABLE)
        return _parent(f"{before}x" if found else before)

    def sql(self, table: SinkTable) -> str:
        return sql_at(self.where(table))

    def gone(self, table: SinkTable) -> None:
        """Nothing else knows of it."""


class Named(Tables):
    """Tables by name in a catalog of the session. The place of each is looked up once."""

    def __init__(self, template: str, session: Session) -> None:
        super().__init__(template)
        self._session = session
        self._found: dict[str, Where] = {}

    def _name(self, table: SinkTable) -> str:
        if TABLE not in self._template and table.side:
            return f"{self._template.rpartition('.')[0]}.{table.target}"
        return self._template.replace(TABLE, table.target)

    def where(self, table: SinkTable) -> Where:
        name = self._name(table)
        if name not in self._found:
            found = located(self._session(), name)
            if found is None:
                return Unplaced.called(name)
            self._found[name] = found
        return self._found[name]

    def _root(self) -> str:
        return schema_folder(self._session(), self._template)

    def sql(self, table: SinkTable) -> str:
        return sql_of(self._name(table))

    def gone(self, table: SinkTable) -> None:
        """The catalog no longer has the table; the files of an external table stay."""
        self._session().sql(f"DROP TABLE IF EXISTS {self.sql(table)}")
        self._found.pop(self._name(table), None)

    def marked(self, job: str, table: SinkTable, claim: Claim) -> MarkedTable:
        """Raises StateConflict if the catalog has another table by that name now."""
        where = self.where(table)
        if where.exists() and where.identity != claim.place:
            raise StateConflict(
                f"{where.shown} is now the catalog's location of table {table.name!r}, but job {job!r} fills "
                f"{claim.place}",
                "let the name refer to that table again; or " + start_over(job),
            )
        return super().marked(job, table, claim)


def _parent(path: str) -> str:
    head = path.rstrip("/").rpartition("/")[0]
    return head or "/"


def refuse_other_owner(records: Iterable[JobRecord], job: str, table: SinkTable, where: Where) -> None:
    here = where.identity
    for record in records:
        for name, claim in record.claims.items():
            if claim.place == here and (record.job, name) != (job, table.name) and name not in record.dropped:
                raise belongs_to(where.shown, record.job, name, record.owner)


def _refuse_link(where: Where) -> None:
    """Raises UsageError for a folder that is a link: a job that names its target keeps its claim elsewhere."""
    if where.local and os.path.islink(where.folder):
        raise UsageError(
            f"{where.shown} is a symbolic link: jobs that name it and its folder would not see each other",
            in_config(f"name the folder itself: sink.table = {json.dumps(os.path.realpath(where.folder))}"),
        )


OF_A_MERGE = ("_file_name_", "_row_id_", "_row_dropped_", "_target_row_present_", "_source_row_present_")
"""Columns that Delta's MERGE adds to a table's own, and then looks up by name; without a key there is no MERGE."""


def _require_types(table: SinkTable) -> None:
    columns = columns_of(table.schema)
    own.refuse_fields(f"table {table.name!r}", fields_of(table.schema))
    require_key(table, columns)
    for name in columns if table.key else ():
        if name.lower() in OF_A_MERGE:
            raise _taken(table, name)
    for name, column in columns.items():
        if not _is_kept(column["type"]):
            raise _cannot_hold(table, name, column["type"])


def _taken(table: SinkTable, name: str) -> UsageError:
    what = f"table {table.name!r}: a column cannot be called {name!r}, which Delta uses for one of its own"
    if table.derived:
        return UsageError(what, f"name it otherwise in derived.sql: {plain(name)} AS {name.strip('_')}")
    return UsageError(what, f"rename it in the transform: {in_select(plain(name), name.strip('_'))}" + IF_BEGUN)


def _cannot_hold(table: SinkTable, name: str, kind: Any) -> BadData:
    return BadData(
        f"table {table.name!r}: column {name!r} is {shown(kind)}, which this sink's tables cannot hold",
        as_text(name, shown(kind)),
    )


def _is_kept(kind: Any) -> bool:
    if isinstance(kind, str):
        return kind in _KEPT or kind.startswith("decimal(")
    if kind["type"] == "array":
        return _is_kept(kind["elementType"])
    if kind["type"] == "map":
        return _is_kept(kind["keyType"]) and _is_kept(kind["valueType"])
    return kind["type"] == "struct" and all(_is_kept(one["type"]) for one in kind["fields"])


def _is_known_to_spark_alone(kind: Any, within: bool = False) -> bool:
    """Whether only Spark can create a table for it: the library declares the feature only for a table that has a
    column of this very type. within: the type is inside another one.
    """
    if isinstance(kind, str):
        return within and kind == "timestamp_ntz"
    parts = [kind[part] for part in ("elementType", "keyType", "valueType") if part in kind]
    parts += [field["type"] for field in kind.get("fields", ())]
    return any(_is_known_to_spark_alone(part, within=True) for part in parts)


def _missing(table: SinkTable, where: Where, ours: bool) -> Lacking:
    columns = columns_of(table.schema)
    if not where.exists():
        declared = any(column["type"] == "timestamp_ntz" for column in columns.values())
        for name, column in columns.items():
            if not declared and _is_known_to_spark_alone(column["type"]):
                raise _cannot_hold(table, name, column["type"])
        return Lacking(table, where, columns, create=True)
    opened = where.open()
    _require_memory(where, opened)
    if not ours and opened.get_add_actions().num_rows:
        raise rows_of_others(where.shown)
    added = missing_columns(where.shown, columns_of(opened.schema().to_json()), columns)
    return Lacking(table, where, added, create=False)


def _require_memory(where: Where, opened: DeltaTable) -> None:
    """Raises UsageError for a table that may forget its number: an idle job's epoch would be applied again."""
    kept = opened.metadata().configuration.get(FORGETS)
    if kept is not None:
        raise UsageError(
            f"{where.shown} keeps the numbers of commits for {kept} only: {FORGETS} is set",
            sql(f"ALTER TABLE delta.`{where.shown}` UNSET TBLPROPERTIES ('{FORGETS}')"),
        )


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
        lack.where.fs.delete_dir(lack.where.folder)


def _name(lack: Lacking) -> str:
    return sql_of(lack.where.shown) if isinstance(lack.where, Unplaced) else sql_at(lack.where)


def _ddl(columns: Columns) -> str:
    return str(struct_type(_bare(columns)).toDDL())


def _add(lack: Lacking, session: Callable[[], SparkSession]) -> None:
    """The table has the new columns, NULL in existing rows."""
    with delta_errors(lack.where.shown):
        try:
            lack.where.open().alter.add_columns(list(_schema(lack.columns).fields))
        except exceptions.DeltaError:  # deltalake cannot with column mapping, Spark can
            rows = session().createDataFrame([], struct_type(_bare(lack.columns)))
            rows.write.format("delta").mode("append").option("mergeSchema", "true").save(lack.where.uri)


def _schema(columns: Columns) -> Schema:
    return Schema.from_json(schema_text(_bare(columns)))


def _bare(columns: Columns) -> Columns:
    """The columns nullable, and without the engine's metadata, which is not for the table."""
    return {name: {**one, "nullable": True, "metadata": {}} for name, one in columns.items()}
