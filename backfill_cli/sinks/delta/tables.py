"""The sink's tables: which exist, and what is missing, according to the tables' logs; see `creating`."""

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import SinkTable, own
from backfill_cli.contracts.targets import belongs_to, gone, other_type, require_key, rows_of_others
from backfill_cli.errors import BadData, StateConflict, UsageError, start_over
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.delta.edge import Where, delta_place
from backfill_cli.lake.delta.names import FORGETS
from backfill_cli.lake.state import Claim, JobRecord, JobState, jobs
from backfill_cli.model.schema import Columns, columns_of, fields_of, same_type, shown
from backfill_cli.sinks.delta.marks import MarkedTable, marks_of
from backfill_cli.sinks.delta.places import Named, Template, where_of
from backfill_cli.spark.names import as_text

if TYPE_CHECKING:
    from deltalake import DeltaTable

_NUMBERS = ("byte", "short", "integer", "long", "float", "double")
_KEPT = (*_NUMBERS, "string", "binary", "boolean", "date", "timestamp", "timestamp_ntz")
"""Types that a Delta table stores without change; so are decimals."""


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
            f"let the name refer to that table again; or {start_over(job)}",
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
            f"name the folder itself: sink.table = {json.dumps(os.path.realpath(where.place.folder))}",
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
    there = {name.lower(): one for name, one in columns_of(opened.schema().to_json()).items()}
    added: Columns = {}
    for name, column in columns.items():
        held = there.get(name.lower())
        if held is None:
            added[name] = column
        elif not same_type(held["type"], column["type"]):
            raise other_type(name, where.shown, shown(held["type"]), shown(column["type"]))
    return Lacking(table, where, added, create=False)


def _require_memory(where: Where, opened: "DeltaTable") -> None:
    """Raises UsageError for a table that may forget its number: an idle job's epoch would be applied again."""
    kept = opened.metadata().configuration.get(FORGETS)
    if kept is not None:
        raise UsageError(
            f"{where.shown} keeps epoch numbers for {kept} only: {FORGETS} is set",
            f"ALTER TABLE delta.`{where.shown}` UNSET TBLPROPERTIES ('{FORGETS}')",
        )
