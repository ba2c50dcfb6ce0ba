"""`backfill init --from`: guesses a job's options and key from its files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import duckdb

from backfill_cli.contracts import FoundTable, Looked, Named, TableSpec, Told
from backfill_cli.decode import exact_types, guesses
from backfill_cli.decode.guesses import ColumnProfile, identifier, literal
from backfill_cli.decode.source_table import Known, matching_table, source_of
from backfill_cli.errors import UsageError
from backfill_cli.formats import schemas
from backfill_cli.model.schema import Columns
from backfill_cli.model.units import nearest_first, spell_count, spell_known, spell_size
from backfill_cli.upstreams.files.changes.debezium import Debezium, payload_of
from backfill_cli.upstreams.files.changes.marked_rows import TIME, TYPE, VERSION
from backfill_cli.upstreams.files.inference import sample
from backfill_cli.upstreams.files.inference.sample import CsvText, Folder
from backfill_cli.upstreams.files.options import FILE_FORMATS, ChangesOptions
from backfill_cli.upstreams.files.reading import avro_envelopes, avro_files, folder_columns, lines
from backfill_cli.upstreams.files.reading.footers import footer

_GENERIC = {"snapshot", "snapshots", "export", "full", "initial", "load", "data", "parquet", "csv", "json"}
"""Folder names that describe the contents and do not name the table."""
_NO_KEYS = ("float", "double", "boolean", "binary")
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Snapshot:
    """columns: what the sample shows. typed: the same columns with the job's types. options: of the snapshot.

    unread: which rows of the sample these types do not read, in words; empty if they read all.
    """

    columns: Mapping[str, ColumnProfile]
    typed: Columns
    options: Mapping[str, Told]
    named: bool = True
    unread: str = ""


def snapshot_of(db: duckdb.DuckDBPyConnection, path: str, found: Folder) -> Snapshot:
    """The options guessed from the files at `path`. Raises UsageError for files that cannot be read."""
    options = {"path": Told(path)}
    if found.kind is None:
        why = f"parquet, json, csv or avro; {found.files[0].name} does not show which"
        return Snapshot({}, {}, {**options, "format": Told(None, why)}, named=False)
    options["format"] = Told(found.kind)
    if found.kind == "parquet":
        typed = schemas.of_footer(found.sample[0].path, footer(found.where, found.sample[0]), by_workers=True)
        return _typed_snapshot(sample.of_parquet(db, found), typed, options)
    if found.kind == "avro":
        typed = avro_files.columns(found.where, found.sample[0])
        return _typed_snapshot(sample.of_avro(db, found, typed), typed, options)
    return _json_snapshot(db, found, options) if found.kind == "json" else _csv_snapshot(db, found, options)


def _typed_snapshot(rows: duckdb.DuckDBPyRelation, typed: Columns, options: Mapping[str, Told]) -> Snapshot:
    """The snapshot of files that carry the types of their columns. rows: some of them."""
    columns = {}
    for name, described in typed.items():
        if isinstance(described["type"], str) and described["type"] not in _NO_KEYS:
            c = identifier(name)
            count, values, distinct = rows.aggregate(f"count(*), count({c}), count(DISTINCT {c})").fetchall()[0]
            columns[name] = ColumnProfile(count, values, distinct, frozenset(), fixed=str(described["type"]))
    return Snapshot(columns, typed, options)


def _csv_snapshot(db: duckdb.DuckDBPyConnection, found: Folder, options: Mapping[str, Told]) -> Snapshot:
    text = sample.of_csv(db, found, "snapshot")
    columns, null = with_nulls(text, text.header or tuple(f"c{i + 1}" for i in range(len(text.rows.columns))))
    told = dict(options)
    if columns.pop("", None) is not None:
        why = "a column without a name: the index that pandas writes; to_csv(path, index=False) omits it"
        told["ignore"] = Told([""], why)
    told |= _dialect({**text.options, **null}, header=True)
    return typed_by(Snapshot(columns, {}, told, bool(text.header)), columns, found)


def _dialect(csv: Mapping[str, Any], header: bool) -> dict[str, Told]:
    """The options under `csv`. header: the default."""
    return {f"csv.{name}": Told(value) for name, value in csv.items() if (name, value) != ("header", header)}


def with_nulls(text: CsvText, names: tuple[str, ...]) -> tuple[dict[str, ColumnProfile], dict[str, str]]:
    """What the columns have in common, and the text of NULL: without it, all values of a column fit a type."""
    plain = guesses.of_relation(text.rows, names)
    lists = f"[{', '.join(identifier(name) for name in text.rows.columns)}]"
    for null in sample.NULLS:
        held = text.rows.filter(f"list_contains({lists}, {literal(null)})")
        if not held.limit(1).fetchall():
            continue
        without = ", ".join(f"nullif({c}, {literal(null)}) AS {c}" for c in map(identifier, text.rows.columns))
        columns = guesses.of_relation(text.rows.select(without), names)
        if null == "\\N" or any(one.kind != plain[name].kind for name, one in columns.items() if one.values):
            return columns, {"null_value": null}
    return plain, {}


def _json_snapshot(db: duckdb.DuckDBPyConnection, found: Folder, options: Mapping[str, Told]) -> Snapshot:
    shape, rows, records = sample.of_json(db, found)
    columns, unread = exact_types.that_read(guesses.profiles(shape, rows), shape, records)
    return typed_by(Snapshot(columns, {}, options, unread=unread), columns, found)


def typed_by(snapshot: Snapshot, columns: Mapping[str, ColumnProfile], found: Folder, more: str = "") -> Snapshot:
    """The snapshot with a schema of these columns, and a comment that says what the schema was guessed from.

    more: than the snapshot's files, in words.
    """
    rows = max((one.rows for one in columns.values()), default=0)
    files = f"{len(found.sample)} of {len(found.files)} files" if len(found.files) > 1 else found.sample[0].name
    exact = snapshot.unread or "each type holds all their values exactly"
    said = [f"guessed from {rows:,} rows of {files}{more}: {exact}"]
    if not snapshot.named:
        said.append("the files do not name their columns: name them here, in this order")
    said += guesses.remarks(columns)
    ddl = guesses.ddl(columns)
    told = Told(ddl or None, "\n".join(said))
    return replace(
        snapshot,
        columns=columns,
        typed=schemas.of_ddl(ddl) if ddl else {},
        options={**snapshot.options, "schema": told},
    )


_LINES = 1_000
_OPS = frozenset({"I", "U", "D"})
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True, slots=True)
class Changes:
    """options: those under `changes`. columns: what text files show about the snapshot's columns."""

    options: Mapping[str, Told]
    columns: Mapping[str, ColumnProfile]


def changes_of(db: duckdb.DuckDBPyConnection, path: str, found: Folder, snapshot: Snapshot, table: str) -> Changes:
    """The options guessed from the change files at `path`."""
    options: dict[str, Told] = {"path": Told(path)}
    if found.kind == "json":
        made = _json_changes(db, found, snapshot, table)
    elif found.kind == "parquet":
        shown = schemas.of_footer(found.sample[0].path, footer(found.where, found.sample[0]), by_workers=True)
        made = _marked_changes(
            {name: str(c["type"]) in _TIMES for name, c in shown.items()}, _op_of(list(shown)), snapshot
        )
    elif found.kind == "avro":
        made = _avro_changes(found, snapshot)
    elif found.kind == "csv":
        made = _csv_changes(db, found, snapshot)
    else:
        made = Changes({"format": _unknown([])}, {})
    options |= made.options
    told = made.options["format"].value
    by_default = (told, found.kind) == ("debezium", "json")
    if found.kind and not found.named and told and len(FILE_FORMATS[told]) > 1 and not by_default:
        options["file_format"] = Told(found.kind)
    return replace(made, options=options)


def _avro_changes(found: Folder, snapshot: Snapshot) -> Changes:
    names = avro_envelopes.members(found.where, found.sample[0])
    if {"op", "after"} <= set(names):
        return Changes({"format": Told("debezium", "its records have 'op' and 'after'")}, {})
    if TYPE not in names and _op_of(names) is None:
        return Changes({"format": _unknown(names)}, {})
    shown = avro_files.columns(found.where, found.sample[0])
    return _marked_changes({name: str(c["type"]) in _TIMES for name, c in shown.items()}, _op_of(names), snapshot)


def _unknown(names: Sequence[str]) -> Told:
    listed = f"; the files have {', '.join(names[:20])}" if names else ""
    return Told(None, f"debezium, dms or change-feed: no 'op', 'Op' or '{TYPE}' shows which{listed}")


def _op_of(names: Sequence[str]) -> str | None:
    return next((name for name in names if name.lower() == "op"), None)


def _marked_changes(times: Mapping[str, bool], op: str | None, snapshot: Snapshot) -> Changes:
    """Options of rows with marks in separate columns. times: per column, in file order, whether it holds times."""
    if TYPE in times:
        return Changes({"format": Told("change-feed", f"by its column {TYPE}")}, {})
    if op is None:
        return Changes({"format": _unknown(list(times))}, {})
    options = {"format": Told("dms", f"by its column {op}")}
    if op != "Op":
        options["op_column"] = Told(op)
    more = [name for name, is_time in times.items() if is_time and name not in snapshot.typed and name != op]
    if len(more) == 1 and snapshot.typed:
        options["time_column"] = Told(more[0], "the snapshot has no such column: the source's commit time")
    return Changes(options, {})


def _csv_changes(db: duckdb.DuckDBPyConnection, found: Folder, snapshot: Snapshot) -> Changes:
    text = sample.of_csv(db, found, "changes")
    names = text.header
    marks: tuple[str, ...] = ()
    if not names:
        marks = _marks_of(text.rows, len(snapshot.columns))
        if not marks:
            width = len(text.rows.columns)
            return Changes({"format": _unknown([f"{width} columns without names"])}, {})
        names = (*marks, *snapshot.columns)
    columns, null = with_nulls(text, names)
    times = {name: bool(one.values and one.kinds & {"time", "instant"}) for name, one in columns.items()}
    made = _marked_changes(times, _op_of(names), snapshot)
    options = dict(made.options)
    if len(marks) > 1:
        options["time_column"] = Told(marks[1], "the second field of each line; any name will do")
    options |= _dialect({**text.options, **null}, header=False)
    known = {*snapshot.typed, "Op", TYPE, VERSION, TIME, *(str(one.value) for one in options.values())}
    new = {name: one for name, one in columns.items() if name not in known}
    if new and options["format"].value:
        options["columns"] = Told(guesses.ddl(new), "the snapshot has no such columns: guessed from the changes")
    return Changes(options, {name: one for name, one in columns.items() if name in snapshot.typed})


def _marks_of(rows: duckdb.DuckDBPyRelation, own: int) -> tuple[str, ...]:
    """The columns that DMS writes before the `own` fields of a row, without a header: the op, perhaps the time."""
    first = identifier(rows.columns[0])
    ops = {one for (one,) in rows.select(first).distinct().limit(len(_OPS) + 1).fetchall()}
    return (
        ("Op", "commit_time")[: len(rows.columns) - own] if ops <= _OPS and 0 < len(rows.columns) - own < 3 else ()
    )


def _json_changes(db: duckdb.DuckDBPyConnection, found: Folder, snapshot: Snapshot, table: str) -> Changes:
    # a line that cannot be read shows nothing: `plan` names it
    envelopes = [
        envelope
        for file in dict.fromkeys((found.sample[0], found.sample[-1]))
        for envelope in lines.objects(
            found.where, file, islice(lines.forward(found.where, file, "json"), _LINES), skip=True
        )
    ]
    payloads = [payload for one in envelopes if (payload := payload_of(one))]
    if any(TYPE in one for one in payloads):
        return Changes({"format": Told("change-feed", f"by its field {TYPE}")}, _times(db, payloads, snapshot))
    if not any("op" in one for one in payloads):
        return Changes({"format": _unknown(sorted({name for one in payloads for name in one}))}, {})
    options = {"format": Told("debezium", "by its field op")}
    sources = sorted({source for one in payloads if (source := source_of(one))})
    if len(sources) > 1:
        mine = matching_table(sources, table)
        listed = f"there are changes of {', '.join(sources[:20])}"
        options["tables"] = Told([mine] if mine else None, listed)
    named = tuple(options["tables"].value or ()) if "tables" in options else ()
    if len(sources) > 1 and not named:  # which of these tables is meant is for the user to say
        return Changes({**options, **_decoding(found, snapshot, table, options)}, {})
    known = Known(named)
    images = (one.get(image) for one in payloads if known.reads(source_of(one)) for image in ("before", "after"))
    times = _times(db, [image for image in images if isinstance(image, dict)], snapshot)
    return Changes({**options, **_decoding(found, snapshot, table, options)}, times)


def _times(
    db: duckdb.DuckDBPyConnection, rows: Sequence[Mapping[str, Any]], snapshot: Snapshot
) -> dict[str, ColumnProfile]:
    """What the texts in the snapshot's timestamp columns have in common: here they can have a zone, or none."""
    found: dict[str, ColumnProfile] = {}
    for name in (name for name, column in snapshot.typed.items() if column["type"] in _TIMES):
        texts = [text for row in rows if isinstance(text := row.get(name), str)]
        if texts:
            found |= guesses.of_relation(db.sql("SELECT unnest($texts) AS text", params={"texts": texts}), (name,))
    return found


def _decoding(found: Folder, snapshot: Snapshot, table: str, options: Mapping[str, Told]) -> dict[str, Told]:
    """The options that changes without schema blocks need to have their values read."""
    tables: Any = options["tables"].value if "tables" in options else None
    given = ChangesOptions(path=found.where.shown, format="debezium", tables=tuple(tables or ()))
    form = Debezium(TableSpec(table, ()), given, {}, quarantines=True)
    lacks, new = form.lacks(found.where, found.sample, snapshot.typed)
    told: dict[str, Told] = {}
    for lack in lacks:
        only = lack.fits[0] if len(lack.fits) == 1 else None
        told[lack.option] = Told(only, lack.why)
    if new:
        ddl = ", ".join(f"{guesses.spelt(name)} {kind or 'STRING'}" for name, kind in new.items())
        told["columns"] = Told(ddl, "the snapshot has no such columns: guessed from the changes")
    return told


def infer(named: Named) -> Looked:
    """The options and key guessed from the files of a snapshot, and of changes.

    Raises UsageError for a place without files, and for a key that is none.
    """
    table = _table(named)
    found = sample.folder(named.text, valued=True)
    said = []
    with sample.opened(named.text) as db:
        held = snapshot_of(db, named.written, found)
        if found.where.valued:
            held = _with_folders(held, found)
        options = {f"snapshot.{name}": told for name, told in held.options.items()}
        if named.changes is not None:
            changed = sample.folder(named.changes.text, connect=True)
            log = changes_of(db, named.changes.written, changed, held, table)
            binary = "decimals" in log.options and log.options["decimals"].value == "double"
            if (log.columns or binary) and "snapshot.schema" in options:
                both = {
                    n: replace(one.with_more(log.columns[n]) if n in log.columns else one, binary=binary)
                    for n, one in held.columns.items()
                }
                options["snapshot.schema"] = typed_by(held, both, found, ", and from changes").options["schema"]
            options |= {f"changes.{name}": told for name, told in log.options.items()}
            form = log.options["format"].value or "of unknown form"
            said.append(f"{named.changes.written}: {_files(changed)}, {form}")
    kind = options.get("changes.format")
    key = _key(held, table) if not named.key else _told_key(held, named)
    count = max(len(held.columns), len(held.typed))  # of Parquet, the profiles are those of possible keys
    columns = f", {spell_count(count, 'column')}" if count else ""
    identified = f", key {', '.join(key.value)}" if key.value else ""
    said.insert(0, f"{named.written}: {_files(found)}{columns}{identified}")
    if held.unread:
        said.append(f"upstream.snapshot.schema: {held.unread}")
    return Looked([FoundTable(table, key, kind is None or kind.value != "dms")], options, said)


def _with_folders(held: Snapshot, found: Folder) -> Snapshot:
    """The snapshot with the columns in the names of folders."""
    ddl = folder_columns.guessed(found.files, held.typed)
    told = Told(ddl, "columns in the names of folders: each type holds all values exactly")
    typed = {**schemas.of_ddl(ddl), **held.typed}
    return replace(held, typed=typed, options={**held.options, "folders": told})


def _files(found: Folder) -> str:
    kind = f"{found.kind} " if found.kind else ""
    size = spell_size(sum(file.size for file in found.files))
    return f"{spell_count(len(found.files), f'{kind}file')}, {size}"


def _table(named: Named) -> str:
    if len(named.tables) > 1:
        raise UsageError(
            f"the files of one table are read from {named.written}, but several tables are named",
            "name one: --table orders; and write the others into the config, with {table} in its paths",
        )
    return named.tables[0] if named.tables else table_of(named.text)


def _told_key(held: Snapshot, named: Named) -> Told:
    """The key that the user named, if the files have its columns."""
    unknown = [name for name in named.key if held.named and held.typed and name not in held.typed]
    if unknown:
        name, columns = unknown[0], list(held.typed)
        known = spell_known(name, columns, "columns")
        raise UsageError(
            f"--key: column {name!r} does not exist in {named.written}{known}",
            f"--key {nearest_first(name, columns)[0]}",
        )
    return Told(list(named.key))


def _key(held: Snapshot, table: str) -> Told:
    name, able = guesses.key_of(held.columns, table)
    rows = max((one.rows for one in held.columns.values()), default=0)
    example = next(iter(able or guesses.like_a_key([*held.columns]) or held.columns), "")
    if not held.named or not held.columns:
        return Told(None, "the files do not name their columns", example)
    listed = ", ".join(able[:_LISTED])
    if name is not None:
        more = f"; also: {', '.join(one for one in able[:_LISTED] if one != name)}" if len(able) > 1 else ""
        return Told([name], f"unique and not NULL in the {rows:,} rows read{more}")
    if able:
        return Told(None, f"each of these is unique in the {rows:,} rows read: {listed}", example)
    return Told(None, f"no single column is unique in the {rows:,} rows read", example)


def table_of(path: str) -> str:
    """A name for the table: the folder's, or the file's up to the first dot or digit."""
    parts = [
        part for part in PurePosixPath(path.partition("://")[2] or path).parts if not re.search(r"[*?\[]", part)
    ]
    for part in reversed(parts):
        stem = re.split(r"[.]|[-_]?[0-9]", part)[0] if "." in part.strip(".") else part
        name = re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_")
        if name and name not in _GENERIC and not name[0].isdigit():
            return name
    return "rows"
