"""Guesses the options of change files from the files and their snapshot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import TableSpec, Told
from backfill_cli.formats import schemas
from backfill_cli.formats.source_table import Known, source_of
from backfill_cli.upstreams.files.changes.change_feed import TIME, TYPE, VERSION
from backfill_cli.upstreams.files.changes.debezium import Debezium
from backfill_cli.upstreams.files.changes.envelope import payload_of
from backfill_cli.upstreams.files.looking import sample, seen
from backfill_cli.upstreams.files.looking.sample import Folder
from backfill_cli.upstreams.files.looking.seen import Seen
from backfill_cli.upstreams.files.looking.snapshot import Snapshot, with_nulls
from backfill_cli.upstreams.files.options import FILE_FORMATS, ChangesOptions
from backfill_cli.upstreams.files.reading import lines
from backfill_cli.upstreams.files.reading.footers import footer

if TYPE_CHECKING:
    import duckdb

_LINES = 1_000
_OPS = frozenset({"I", "U", "D"})
_TIMES = ("timestamp", "timestamp_ntz")


@dataclass(frozen=True, slots=True)
class Changes:
    """options: those under `changes`. columns: what text files show about the snapshot's columns."""

    options: Mapping[str, Told]
    columns: Mapping[str, Seen]


def look(db: "duckdb.DuckDBPyConnection", path: str, found: Folder, snapshot: Snapshot, table: str) -> Changes:
    """The options guessed from the change files at `path`."""
    options: dict[str, Told] = {"path": Told(path)}
    if found.kind == "json":
        made = _json(db, found, snapshot, table)
    elif found.kind == "parquet":
        shown = schemas.of_footer(found.sample[0].path, footer(found.where, found.sample[0]), by_workers=True)
        made = _rows({name: str(c["type"]) in _TIMES for name, c in shown.items()}, _op_of(list(shown)), snapshot)
    elif found.kind == "csv":
        made = _csv(db, found, snapshot)
    else:
        made = Changes({"format": _unknown([])}, {})
    options |= made.options
    told = made.options["format"].value
    if found.kind and not found.named and told and len(FILE_FORMATS[told]) > 1:
        options["file_format"] = Told(found.kind)
    return replace(made, options=options)


def _unknown(names: Sequence[str]) -> Told:
    listed = f"; the files have {', '.join(names[:20])}" if names else ""
    return Told(None, f"debezium, dms or change-feed: no 'op', 'Op' or '{TYPE}' shows which{listed}")


def _op_of(names: Sequence[str]) -> str | None:
    return next((name for name in names if name.lower() == "op"), None)


def _rows(times: Mapping[str, bool], op: str | None, snapshot: Snapshot) -> Changes:
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


def _csv(db: "duckdb.DuckDBPyConnection", found: Folder, snapshot: Snapshot) -> Changes:
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
    made = _rows(times, _op_of(names), snapshot)
    options = dict(made.options)
    if len(marks) > 1:
        options["time_column"] = Told(marks[1], "the second field of each line; any name will do")
    csv = {**text.options, **null}
    options |= {f"csv.{name}": Told(value) for name, value in csv.items() if (name, value) != ("header", False)}
    known = {*snapshot.typed, "Op", TYPE, VERSION, TIME, *(str(one.value) for one in options.values())}
    new = {name: one for name, one in columns.items() if name not in known}
    if new and options["format"].value:
        options["columns"] = Told(seen.ddl(new), "the snapshot has no such columns: guessed from the changes")
    return Changes(options, {name: one for name, one in columns.items() if name in snapshot.typed})


def _marks_of(rows: "duckdb.DuckDBPyRelation", own: int) -> tuple[str, ...]:
    """The columns that DMS writes before the `own` fields of a row, without a header: the op, perhaps the time."""
    first = seen.text_name(rows.columns[0])
    ops = {one for (one,) in rows.select(first).distinct().limit(len(_OPS) + 1).fetchall()}
    return (
        ("Op", "commit_time")[: len(rows.columns) - own] if ops <= _OPS and 0 < len(rows.columns) - own < 3 else ()
    )


def _json(db: "duckdb.DuckDBPyConnection", found: Folder, snapshot: Snapshot, table: str) -> Changes:
    envelopes = [
        lines.parsed(file, line)
        for file in dict.fromkeys((found.sample[0], found.sample[-1]))
        for line in islice(lines.forward(found.where, file, "json"), _LINES)
    ]
    payloads = [payload for one in envelopes if (payload := payload_of(one))]
    if any(TYPE in one for one in payloads):
        return Changes({"format": Told("change-feed", f"by its field {TYPE}")}, _times(db, payloads, snapshot))
    if not any("op" in one for one in payloads):
        return Changes({"format": _unknown(sorted({name for one in payloads for name in one}))}, {})
    options = {"format": Told("debezium", "by its field op")}
    sources = sorted({source for one in payloads if (source := source_of(one))})
    if len(sources) > 1:
        mine = [one for one in sources if one.rpartition(".")[2] == table]
        listed = f"there are changes of {', '.join(sources[:20])}"
        options["tables"] = Told(mine if len(mine) == 1 else None, listed)
    named = tuple(options["tables"].value or ()) if "tables" in options else ()
    if len(sources) > 1 and not named:  # which of these tables is meant is for the user to say
        return Changes({**options, **_decoding(found, snapshot, table, options)}, {})
    known = Known(named)
    images = (one.get(image) for one in payloads if known.reads(source_of(one)) for image in ("before", "after"))
    times = _times(db, [image for image in images if isinstance(image, dict)], snapshot)
    return Changes({**options, **_decoding(found, snapshot, table, options)}, times)


def _times(
    db: "duckdb.DuckDBPyConnection", rows: Sequence[Mapping[str, Any]], snapshot: Snapshot
) -> dict[str, Seen]:
    """What the texts in the snapshot's timestamp columns have in common: here they can have a zone, or none."""
    found: dict[str, Seen] = {}
    for name in (name for name, column in snapshot.typed.items() if column["type"] in _TIMES):
        texts = [text for row in rows if isinstance(text := row.get(name), str)]
        if texts:
            found |= seen.of_relation(db.sql("SELECT unnest($texts) AS text", params={"texts": texts}), (name,))
    return found


def _decoding(found: Folder, snapshot: Snapshot, table: str, options: Mapping[str, Told]) -> dict[str, Told]:
    """The options that changes without schema blocks need to have their values read."""
    tables: Any = options["tables"].value if "tables" in options else None
    given = ChangesOptions(path=found.where.shown, format="debezium", tables=tuple(tables or ()))
    form = Debezium(TableSpec(table, ()), given, {})
    lacks, new = form.lacks(found.where, found.sample, snapshot.typed)
    told: dict[str, Told] = {}
    for lack in lacks:
        only = lack.fits[0] if len(lack.fits) == 1 else None
        why = lack.fault.partition(": ")[2].rpartition(": set ")[0].removeprefix("nothing says ")
        told[lack.option] = Told(only, why)
    if new:
        ddl = ", ".join(f"{seen.spelt(name)} {kind or 'STRING'}" for name, kind in new.items())
        told["columns"] = Told(ddl, "the snapshot has no such columns: guessed from the changes")
    return told
