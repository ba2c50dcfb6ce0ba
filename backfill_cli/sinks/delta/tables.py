"""The sink's tables: where they are, which exist, what is missing according to their logs, and which can go."""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.refusals import belongs_to, gone, require_key, rows_of_others
from backfill_cli.errors import BadData, StateConflict, UsageError, in_config, sql, start_over
from backfill_cli.formats.listing import Place, place
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta import FORGETS
from backfill_cli.lake.delta.edge import Where, delta_place
from backfill_cli.lake.delta.names import Session, located, schema_folder, sql_of
from backfill_cli.lake.sink import missing_columns
from backfill_cli.lake.state import FOLDER, Claim, JobRecord, JobState, jobs
from backfill_cli.model.schema import Columns, columns_of, fields_of, shown
from backfill_cli.sinks.delta.marks import MarkedTable, marks_of
from backfill_cli.spark.names import as_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

TABLE = "{table}"
_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_KEPT = (*_NUMBERS, "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
"""Types that a Delta table stores without change; so are decimals."""


class Unplaced(Where):
    """A table that the session's catalog does not have yet, and will place when it is created."""

    __slots__ = ()

    @classmethod
    def called(cls, name: str) -> "Unplaced":
        return cls(Place(LocalFileSystem(), "", (), name, name.lower(), False))  # Spark's catalogs ignore case

    def exists(self) -> bool:
        return False


class Named:
    """Tables by name in a catalog of the session. The place of each is looked up once."""

    def __init__(self, template: str, session: Session) -> None:
        self.template, self.session = template, session
        self._found: dict[str, Where] = {}

    def name(self, table: SinkTable) -> str:
        """The table's name. Without {table} in the option, a side table is beside the job's table."""
        if TABLE not in self.template and table.side:
            return f"{self.template.rpartition('.')[0]}.{table.target}"
        return self.template.replace(TABLE, table.target)

    def where(self, table: SinkTable) -> Where:
        name = self.name(table)
        if name not in self._found:
            found = located(self.session(), name)
            if found is None:
                return Unplaced.called(name)
            self._found[name] = found
        return self._found[name]

    def gone(self, table: SinkTable) -> None:
        """The catalog no longer has the table; the files of an external table stay."""
        self.session().sql(f"DROP TABLE IF EXISTS {sql_of(self.name(table))}")
        self._found.pop(self.name(table), None)


Template = str | Named


def where_of(template: Template, table: SinkTable) -> Where:
    """The table's folder. Without {table} in the option, a side table is beside the job's table."""
    if isinstance(template, Named):
        return template.where(table)
    if TABLE in template:
        return Where.of(template, table.target)
    return Where.of(f"{_parent(template)}/{table.target}" if table.side else template, table.target)


def state_of(template: Template) -> Blobs:
    """The state folder, the same for all tables that the option can name."""
    if isinstance(template, Named):
        found = place(f"{schema_folder(template.session(), template.template)}/{FOLDER}", "")
        return Blobs(found.fs, found.folder)
    root = _parent(template.split(TABLE)[0] + "x") if TABLE in template else _parent(template)
    found = place(f"{root}/{FOLDER}", "")
    return Blobs(found.fs, found.folder)


def _parent(path: str) -> str:
    head = path.rstrip("/").rpartition("/")[0]
    return head or "/"


@dataclass(frozen=True, slots=True)
class Lacking:
    """What one table lacks. columns: those to add; all of them if `create`."""

    table: SinkTable
    where: Where
    columns: Columns
    create: bool


def marked(state: Blobs, template: Template, job: str, record: JobRecord, table: SinkTable) -> MarkedTable | None:
    """The table that the job has claimed; None if the job has no claim on it."""
    claim = record.claims.get(table.name)
    if claim is None:
        return None
    where = where_of(template, table)
    if isinstance(template, Named) and where.exists() and delta_place(where) != claim.place:
        raise StateConflict(
            f"{where.shown} is now the catalog's location of table {table.name!r}, but job {job!r} fills "
            f"{claim.place}",
            "let the name refer to that table again; or " + start_over(job),
        )
    return MarkedTable(job, table.name, claim, where, marks_of(state, job, claim))


def check(
    state: Blobs, template: Template, job: str, tables: Sequence[SinkTable], into_existing: bool
) -> list[Lacking]:
    """What `prepare` would create; writes nothing. Raises for tables that the job cannot write to."""
    records = {record.job: record for record in jobs(state)}
    own = records.get(job) or JobRecord(job)
    lacking = []
    for table in tables:
        _require_types(table)
        where = where_of(template, table)
        _refuse_other_owner(records, job, table, where)
        claimed = marked(state, template, job, own, table)
        marker = claimed.marker() if claimed is not None else None
        if claimed is None:
            _refuse_link(where)
        if claimed is not None and marker is None and table.name in own.dropped:
            claimed = None
        if claimed is not None and marker is None and JobState(state, job).began():
            raise gone(where.shown, job)
        ours = into_existing or (marker is not None and marker.epoch > 0)
        lacking.append(_missing(table, where, ours))
    return lacking


def claim(state: Blobs, template: Template, job: str, tables: Sequence[SinkTable]) -> None:
    """The tables are claimed by the job; writes nothing if they were before."""
    JobState(state, job).change(lambda record: _claimed(record, template, job, tables, state))


def _claimed(
    record: JobRecord | None, template: Template, job: str, tables: Sequence[SinkTable], state: Blobs
) -> JobRecord:
    known = record or JobRecord(job)
    new = [table for table in tables if table.name not in known.claims or table.name in known.dropped]
    if not new:
        return known
    held = [one for table in tables if (one := marked(state, template, job, known, table)) is not None]
    token = max([marker.token for one in held if (marker := one.marker()) is not None], default=0)
    claims = {t.name: Claim(delta_place(where_of(template, t)), uuid.uuid4().hex[:12], token) for t in new}
    dropped = {name: marker for name, marker in known.dropped.items() if name not in claims}
    return JobRecord(job, {**known.claims, **claims}, known.owner, dropped, known.layout)


def _refuse_other_owner(records: Mapping[str, JobRecord], job: str, table: SinkTable, where: Where) -> None:
    here = delta_place(where)
    for other, record in records.items():
        held = next((name for name, claim in record.claims.items() if claim.place == here), None)
        if held is not None and (other, held) != (job, table.name) and held not in record.dropped:
            raise belongs_to(where.shown, other, held, record.owner)


def _refuse_link(where: Where) -> None:
    """Raises UsageError for a folder that is a link: a job that names its target keeps its claim elsewhere."""
    if where.place.local and os.path.islink(where.place.folder):
        raise UsageError(
            f"{where.shown} is a symbolic link: jobs that name it and its folder would not see each other",
            in_config(f"name the folder itself: sink.table = {json.dumps(os.path.realpath(where.place.folder))}"),
        )


def _require_types(table: SinkTable) -> None:
    columns = columns_of(table.schema)
    own.refuse_fields(f"table {table.name!r}", fields_of(table.schema))
    require_key(table, columns)
    for name, column in columns.items():
        if not _is_kept(column["type"]):
            raise _cannot_hold(table, name, column["type"])


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


def _require_memory(where: Where, opened: "DeltaTable") -> None:
    """Raises UsageError for a table that may forget its number: an idle job's epoch would be applied again."""
    kept = opened.metadata().configuration.get(FORGETS)
    if kept is not None:
        raise UsageError(
            f"{where.shown} keeps epoch numbers for {kept} only: {FORGETS} is set",
            sql(f"ALTER TABLE delta.`{where.shown}` UNSET TBLPROPERTIES ('{FORGETS}')"),
        )


def droppable(state: Blobs, template: Template, tables: Sequence[SinkTable]) -> list[Where]:
    """The places of those of the tables that exist, before they are dropped. A name alone makes none the job's.

    Raises StateConflict for a table that no job has claimed, and for one that replaced a claimed one: it has rows,
    but its log has no number of the job.
    """
    records = jobs(state)
    found = [(table, where) for table in tables if (where := where_of(template, table)).exists()]
    for table, where in found:
        if not any(_is_of(state, record, table, where) for record in records):
            raise StateConflict(
                f"{where.shown}, the place of table {table.name!r}, now has a table that the job did not fill; "
                "nothing is dropped",
                "restore the job's table there; or omit --with-rows, and delete by hand what is no longer needed",
            )
    return [where for _, where in found]


def _is_of(state: Blobs, record: JobRecord, table: SinkTable, where: Where) -> bool:
    claim = record.claims.get(table.name)
    if claim is None or claim.place != delta_place(where):
        return False
    held = MarkedTable(record.job, table.name, claim, where, marks_of(state, record.job, claim))
    return held.is_numbered() or not where.open().get_add_actions().num_rows
