"""Guesses a snapshot's options from its files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import Told
from backfill_cli.formats import schemas
from backfill_cli.model.schema import Columns
from backfill_cli.upstreams.files.looking import sample, seen
from backfill_cli.upstreams.files.looking.sample import CsvText, Folder
from backfill_cli.upstreams.files.looking.seen import Seen
from backfill_cli.upstreams.files.reading.footers import footer

if TYPE_CHECKING:
    import duckdb

_EXACT_IN_JSON = 15
"""DuckDB reads a number in JSON as a double: up to this many digits it identifies the number as written."""
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Snapshot:
    """columns: what the sample shows. typed: the same columns with the job's types. options: of the snapshot."""

    columns: Mapping[str, Seen]
    typed: Columns
    options: Mapping[str, Told]
    named: bool = True
    csv: Mapping[str, Any] = field(default_factory=dict)


def look(db: "duckdb.DuckDBPyConnection", path: str, found: Folder) -> Snapshot:
    """The options guessed from the files at `path`. Raises UsageError for files that cannot be read."""
    options = {"path": Told(path)}
    if found.kind is None:
        why = f"parquet, json or csv; {found.files[0].name} does not show which"
        return Snapshot({}, {}, {**options, "format": Told(None, why)}, named=False)
    options["format"] = Told(found.kind)
    if found.kind == "parquet":
        return _parquet(db, found, options)
    return _json(db, found, options) if found.kind == "json" else _csv(db, found, options)


def _parquet(db: "duckdb.DuckDBPyConnection", found: Folder, options: Mapping[str, Told]) -> Snapshot:
    typed = schemas.of_footer(found.sample[0].path, footer(found.where, found.sample[0]), by_workers=True)
    rows = sample.of_parquet(db, found)
    columns = {}
    for name, described in typed.items():
        if isinstance(described["type"], str) and described["type"] not in (
            "float",
            "double",
            "boolean",
            "binary",
        ):
            c = seen.text_name(name)
            count, values, distinct = rows.aggregate(f"count(*), count({c}), count(DISTINCT {c})").fetchall()[0]
            columns[name] = Seen(count, values, distinct, frozenset(), fixed=str(described["type"]))
    return Snapshot(columns, typed, options)


def _csv(db: "duckdb.DuckDBPyConnection", found: Folder, options: Mapping[str, Told]) -> Snapshot:
    text = sample.of_csv(db, found, "snapshot")
    names = text.header or tuple(f"c{i + 1}" for i in range(len(text.rows.columns)))
    columns, null = with_nulls(text, names)
    index = {name for name in columns if not name}
    csv = {**text.options, **null}
    told = dict(options)
    if index:
        why = "a column without a name: the index that pandas writes; to_csv(path, index=False) omits it"
        told["ignore"] = Told([""], why)
    told |= {f"csv.{name}": Told(value) for name, value in csv.items() if (name, value) != ("header", True)}
    kept = {name: one for name, one in columns.items() if name}
    named = bool(text.header)
    snapshot = Snapshot(kept, {}, told, named, csv)
    return typed_by(snapshot, kept, found)


def with_nulls(text: CsvText, names: tuple[str, ...]) -> tuple[dict[str, Seen], dict[str, str]]:
    """What the columns have in common, and the text of NULL: without it, all values of a column fit a type."""
    plain = seen.of_relation(text.rows, names)
    lists = f"[{', '.join(seen.text_name(name) for name in text.rows.columns)}]"
    for null in sample.NULLS:
        held = text.rows.filter(f"list_contains({lists}, {sample.text(null)})")
        if not held.limit(1).fetchall():
            continue
        without = ", ".join(
            f"nullif({c}, {sample.text(null)}) AS {c}" for c in map(seen.text_name, text.rows.columns)
        )
        columns = seen.of_relation(text.rows.select(without), names)
        if null == "\\N" or any(one.kind != plain[name].kind for name, one in columns.items() if one.values):
            return columns, {"null_value": null}
    return plain, {}


def _json(db: "duckdb.DuckDBPyConnection", found: Folder, options: Mapping[str, Told]) -> Snapshot:
    shape, rows = sample.of_json(db, found)
    columns = {}
    for name, one in seen.of_relation(rows, list(shape)).items():
        columns[name] = _of_json(one, shape[name])
    return typed_by(Snapshot(columns, {}, options), columns, found)


def _of_json(one: Seen, shape: Any) -> Seen:
    """JSON strings stay text, even if they hold only digits."""
    if not isinstance(shape, str):
        return replace(one, fixed=_nested(shape))
    able = {"VARCHAR": {"date", "time", "instant"}, "BOOLEAN": {"boolean"}}.get(
        shape, {"whole", "number", "float"}
    )
    kinds = one.kinds & able
    if one.digits + one.places > _EXACT_IN_JSON and shape == "DOUBLE":
        kinds -= {"number"}
    return replace(one, kinds=kinds)


def _nested(shape: Any) -> str:
    """A structure of values as Spark DDL; numbers with a point become STRING, which keeps all digits."""
    if isinstance(shape, list):
        return f"ARRAY<{_nested(shape[0]) if shape else 'STRING'}>"
    if isinstance(shape, dict):
        return f"STRUCT<{', '.join(f'{seen.spelt(name)}: {_nested(inner)}' for name, inner in shape.items())}>"
    return {"BOOLEAN": "BOOLEAN", "UBIGINT": "BIGINT", "BIGINT": "BIGINT"}.get(shape, "STRING")


def typed_by(snapshot: Snapshot, columns: Mapping[str, Seen], found: Folder) -> Snapshot:
    """The snapshot with a schema of these columns, and a comment that says what the schema was guessed from."""
    rows = max((one.rows for one in columns.values()), default=0)
    files = f"{len(found.sample)} of {len(found.files)} files" if len(found.files) > 1 else found.sample[0].name
    said = [f"guessed from {rows:,} rows of {files}: each type holds all their values exactly"]
    if not snapshot.named:
        said.append("the files do not name their columns: name them here, in this order")
    remarks = [remark for name, one in columns.items() if (remark := one.remark(name))]
    said += remarks[:_SHOWN]
    if len(remarks) > _SHOWN:
        said.append(f"and {len(remarks) - _SHOWN} more like these")
    ddl = seen.ddl(columns)
    told = Told(ddl or None, "\n".join(said))
    return replace(
        snapshot,
        columns=columns,
        typed=schemas.of_ddl(ddl) if ddl else {},
        options={**snapshot.options, "schema": told},
    )
