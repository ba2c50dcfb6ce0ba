"""Reads Debezium change events, one JSON envelope per line, with or without the schema block.

An envelope holds `op` (c, r: new row; u: changed; d: deleted; t: truncated), `before`, `after`, `source.ts_ms` and
`ts_ms`. With the schema block it is `{"schema": …, "payload": envelope}`. Blank and `null` lines (tombstones) add
nothing to the delete before them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar

from backfill_cli.contracts import TableSpec, own
from backfill_cli.decode.block import meaning, row_of
from backfill_cli.errors import BadData, ConfigError, in_config
from backfill_cli.formats import frames
from backfill_cli.formats.debezium_changes import (
    HEARTBEAT,
    HEARTBEAT_HINT,
    NEW_SNAPSHOT,
    TABLES_HINT,
    UNWRAPPED,
    changes,
    envelope_columns,
)
from backfill_cli.formats.debezium_forms import Lack, lacks
from backfill_cli.formats.debezium_forms import undeclared as undeclared_columns
from backfill_cli.formats.debezium_order import blanks, can_be_late, comparable, is_placed
from backfill_cli.formats.debezium_types import Connect, encoding, own_type
from backfill_cli.formats.listing import File, Place
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.formats.source_table import NAMELESS, Known, source_of
from backfill_cli.formats.values import DECIMALS_HINT, Encoding, read_as_text, schemaless, textual
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns, SparkType, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import CHANGES_HINT
from backfill_cli.upstreams.files.changes.change_format import Inspected, declared, undeclared
from backfill_cli.upstreams.files.options import ChangesOptions
from backfill_cli.upstreams.files.reading import json_rows, lines
from backfill_cli.upstreams.files.reading.rows import THREADS

_ONE_FORM = "divide the file where that changes, in the order of its lines: one not yet applied may be replaced"

_SAMPLED = 20
"""Lines read at each end of a file to see how its values are written."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one file writes its lines. told: each column's field in the schema block, None without a block.

    blanks: those of the columns (see debezium_order), as far as they are known. late: whether the order of the
    lines can prove that the source checks its key late.
    """

    told: Mapping[str, Connect] | None
    blanks: Mapping[str, frozenset[str]]
    late: bool

    @property
    def key(self) -> str:
        return json.dumps(self.told, sort_keys=True)


class Debezium:
    """One table's Debezium files. See change_format.ChangeFormat."""

    before_images: ClassVar[bool] = True

    def __init__(
        self, table: TableSpec, options: ChangesOptions, declared: Columns, quarantines: bool = False
    ) -> None:
        self._table, self._options, self._declared = table, options, declared
        self._known = Known(tuple(one.replace("{table}", table.name) for one in options.tables))

    def expect(self, source: str | None, folder: str) -> None:
        """Refuse lines of another table from now on. source: the folder's table at the start, None if empty."""
        self._known = replace(self._known, source=source, named=(folder.rpartition("/")[2], self._table.name))

    def source(self, where: Place, files: Sequence[File]) -> str | None:
        """The table whose changes these files hold, by the first and the last line; None if they do not name it.

        Raises ConfigError if there are several and the options do not say which is meant.
        """
        if not files or self._options.tables:
            return None
        found = set[str]()
        for file, read in ((files[0], lines.forward), (files[-1], lines.last)):
            payloads = (payload_of(lines.parsed(file, line)) for line in read(where, file, "debezium"))
            found.add(source_of(next((one for one in payloads if one and one.get("op") != "m"), {})))
        names = sorted(found - {""})
        if len(names) > 1:
            raise ConfigError(
                "upstream",
                [f"upstream.changes.path: {where.shown} holds changes of several tables: {', '.join(names)}"],
                in_config(f'name the tables that are meant: upstream.changes.tables = ["{names[0]}"]'),
            )
        return names[0] if names else None

    def refuse_lacking(self, where: Place, files: Sequence[File], known: Columns) -> None:
        """The options suffice to read the oldest and the newest of these files.

        Raises ConfigError with every option that is missing, and the value that fits.
        """
        lacks, new = self.lacks(where, files, known)
        faults = [one.fault for one in lacks]
        if new:
            faults.append(
                f"upstream.changes.columns: changes of '{self._table.name}' have columns that the snapshot lacks, "
                f"without types: set {declared(new)}, or their actual types"
            )
        if faults:
            raise ConfigError("upstream", faults)

    def lacks(self, where: Place, files: Sequence[File], known: Columns) -> tuple[list[Lack], Mapping[str, str]]:
        """The options that the oldest and the newest of these files need, and the types of new columns."""
        shown = [row for file in dict.fromkeys((*files[:1], *files[-1:])) for row in self._blockless(where, file)]
        declared = {**known, **self._declared}
        found = lacks(declared, shown, self._options.timestamps, self._options.decimals, "upstream.changes")
        return found, undeclared_columns(declared, shown)

    def _blockless(self, where: Place, file: File) -> list[Mapping[str, Any]]:
        """Rows of the file's first and last lines that have no schema block."""
        found: list[Mapping[str, Any]] = []
        for read in (lines.forward, lines.last):
            for line in islice(read(where, file, "debezium"), _SAMPLED):
                envelope = lines.parsed(file, line, numbers=float)
                payload = payload_of(envelope) or {}
                if told_of(envelope) is None and self._known.reads(source_of(payload)):
                    images = payload.get("before"), payload.get("after")
                    found += [row for row in images if isinstance(row, dict)]
        return found

    def inspect(self, where: Place, file: File, known: Columns) -> Inspected:
        ms: int | None = None
        # back to the last row image: any number of deletes, which have none, can follow it
        for number, line in enumerate(lines.last(where, file, "debezium")):
            envelope = lines.parsed(file, line)
            payload = payload_of(envelope)
            if payload is None:
                continue
            refuse_other(file, payload, line)
            ms = source_ms(payload) if number == 0 else ms
            of = source_of(payload)
            if not self._known.reads(of) or payload.get("op") == "m":
                continue
            if self._known.is_other(of):
                raise BadData(f"{file.path}: {self._known.meant}: {of or NAMELESS}", TABLES_HINT)
            told, image = told_of(envelope), payload.get("after")
            if told is not None:
                return Inspected(file, None, ms, self._told_columns(file, told, known))
            if isinstance(image, dict):
                return Inspected(file, None, ms, self._shown_columns(file, image, known))
        return Inspected(file, None, ms, None)

    def _told_columns(self, file: File, told: Mapping[str, Connect], known: Columns) -> Columns:
        """The columns from the schema block. A column that no longer fits its known type gets its current one."""
        columns: Columns = {}
        for name, one in told.items():
            before = known.get(name) or self._declared.get(name)
            try:
                if before is not None and _fits(one, before["type"]):
                    columns[name] = before
                else:
                    columns[name] = field(name, *own_type(one))
            except Unsupported as exc:
                raise BadData(
                    f"{file.path}: column '{name}': {exc}",
                    "declare it with a type that fits, as "
                    + declared({name: "DECIMAL(38,10)"})
                    + "; or leave it out of the connector (column.exclude.list), and write the file again without "
                    "it",
                ) from exc
        return columns

    def _shown_columns(self, file: File, image: Mapping[str, Any], known: Columns) -> Columns:
        """The columns from a row of a file without schema block, which carries no types."""
        columns: Columns = {name: column for name, column in known.items() if name in image}
        for name in image:
            if name not in columns and name not in self._declared:
                raise undeclared(file, name)
            columns.setdefault(name, self._declared.get(name, {}))
        return columns

    def frame(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        columns: Columns,
        before: File | None = None,
    ) -> DataFrame | None:
        groups: dict[str, tuple[list[_Shape], list[File]]] = {}
        begun = [before] if before is not None and _goes_on(where, before, files[0]) else []
        read = [*begun, *files]
        with ThreadPoolExecutor(THREADS) as pool:
            for file, shape in zip(read, pool.map(lambda f: _shape(where, f, self._known), read), strict=True):
                if shape is not None:
                    shapes, alike = groups.setdefault(shape.key, ([], []))
                    shapes.append(shape)
                    alike.append(file)
        if not groups:
            return None
        parts = [self._of_shape(spark, where, alike, shapes, columns) for shapes, alike in groups.values()]
        found = balanced(lambda a, b: a.unionByName(b), parts)
        return found.where(~found[own.SEQ]["at"]["file"].isin([file.name for file in begun])) if begun else found

    def _of_shape(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        shapes: Sequence[_Shape],
        columns: Columns,
    ) -> DataFrame:
        shape = shapes[0]
        encodings: dict[str, Encoding] = {}
        for name, column in columns.items():
            try:
                encodings[name] = self._encoding(shape, name, column["type"])
            except Unsupported as exc:
                what = f"{files[0].path}: column '{name}': {exc}"
                if shape.told is None:
                    raise BadData(what, DECIMALS_HINT) from exc
                raise BadData(what, NEW_SNAPSHOT) from exc
        key, epoch = self._table.key, self._options.epoch
        images = comparable(key, columns, encodings) if any(one.late for one in shapes) else None
        envelope = envelope_columns(key, columns, encodings, epoch, images)
        at = "r" if shape.told is None else "r.payload"
        if shape.told is not None:
            envelope = {"payload": field("payload", {"type": "struct", "fields": list(envelope.values())})}
        numbered = arrow_tasks.workers_know_us(spark)
        told = (
            json_rows.line_frame(spark, where, files, CHANGES_HINT)
            if numbered
            else frames.text_lines(spark, where, files)
        )
        parsed = frames.json_objects(told, envelope, read_as_text(columns, encodings))
        told_blanks = None if shape.told is None else _together([one.blanks for one in shapes])
        return changes(parsed, at, key, columns, encodings, epoch, self._known, numbered, images, told_blanks)

    def _encoding(self, shape: _Shape, name: str, target: SparkType) -> Encoding:
        if shape.told is None:
            return schemaless(target, self._options.timestamps, self._options.decimals)
        # in a file older than the column, the column is NULL
        return encoding(shape.told[name], target) if name in shape.told else textual(target)


def _fits(told: Connect, target: SparkType) -> bool:
    try:
        encoding(told, target)
    except Unsupported:
        return False
    return True


def _shape(where: Place, file: File, known: Known) -> _Shape | None:
    """The shape from the first and the last line: a column that was added in between is in the last.

    None if the file has no changes of the tables that are read.
    """
    first = _first_read(file, lines.forward(where, file, "debezium"), known)
    last = _first_read(file, lines.last(where, file, "debezium"), known)
    if first is None or last is None:
        return None
    late = can_be_late(payload for one in (first, last) if (payload := payload_of(one)) is not None)
    begin, end = told_of(first), told_of(last)
    if (begin is None) != (end is None):
        raise BadData(f"{file.path}: some lines have a schema block and some do not", _ONE_FORM)
    if begin is None or end is None:
        return _Shape(None, {}, late)
    for name in begin.keys() & end.keys():
        if meaning(begin[name]) != meaning(end[name]):
            raise BadData(f"{file.path}: column '{name}' changes its type within the file", _ONE_FORM)
    told = {name: meaning(one) for name, one in {**begin, **end}.items()}
    certain = [
        {name: of for name, one in ends.items() if (of := blanks(one)) is not None} for ends in (begin, end)
    ]
    return _Shape(told, _together(certain), late)


def _together(found: Sequence[Mapping[str, frozenset[str]]]) -> Mapping[str, frozenset[str]]:
    """The blanks of the columns that all of these know."""
    common = set(found[0]).intersection(*found[1:])
    return {name: frozenset().union(*(one[name] for one in found)) for name in common}


def _first_read(file: File, some: Iterable[str], known: Known) -> Mapping[str, Any] | None:
    envelopes = (lines.parsed(file, line) for line in some)
    return next((one for one in envelopes if known.reads(source_of(payload_of(one) or {}))), None)


def _goes_on(where: Place, before: File, file: File) -> bool:
    """Whether the last transaction of a file is the first one of the next; reads one line of each."""
    first = payload_of(lines.parsed(file, next(lines.forward(where, file, "debezium"), "{}"))) or {}
    if not is_placed(first):
        return False
    last = payload_of(lines.parsed(before, next(lines.last(where, before, "debezium"), "{}"))) or {}
    return is_placed(last) and last["source"]["txId"] == first["source"]["txId"]


def refuse_other(file: File, payload: Mapping[str, Any], line: str) -> None:
    """Raises BadData for a line that is not an envelope of a table's row, with what it is and what to do."""
    if {"updateDescription", "patch", "filter"} & payload.keys() or isinstance(payload.get("after"), str):
        raise BadData(
            f"{file.path}: an envelope of Debezium's MongoDB connector, which holds documents, not rows: "
            f"{line[:120]}",
            "flatten documents before they land; only envelopes of relational connectors are read",
        )
    if "op" in payload:
        return
    if payload.keys() == {"ts_ms"}:
        raise BadData(f"{file.path}: {HEARTBEAT}: {line[:120]}", HEARTBEAT_HINT)
    if any(name in payload for name in UNWRAPPED):
        raise BadData(
            f"{file.path}: flattened by Debezium's ExtractNewRecordState, so without the old row: {line[:120]}",
            "remove the transform `unwrap` from the connector: only whole envelopes are read",
        )
    raise BadData(
        f"{file.path}: a line without 'op' is not a Debezium envelope: {line[:120]}",
        in_config(
            "if these are plain appends (rows without an op), set their folder as upstream.snapshot.path; "
            "else set upstream.changes.format"
        ),
    )


def payload_of(envelope: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The envelope itself, out of its schema block if it has one; None for a tombstone."""
    if "payload" in envelope and "op" not in envelope:
        inner = envelope["payload"]
        return inner if isinstance(inner, dict) else None
    return envelope


def told_of(envelope: Mapping[str, Any]) -> dict[str, Connect] | None:
    """The row's fields in the schema block, by column; None without a block."""
    if "payload" not in envelope or "op" in envelope:
        return None
    return {one["field"]: one for one in row_of(envelope.get("schema") or {}) or ()}


def source_ms(payload: Mapping[str, Any]) -> int | None:
    """When the source wrote the change, else when the connector read it; None if the line has neither."""
    source = payload.get("source")
    for holder in (source if isinstance(source, dict) else {}, payload):
        if isinstance(holder.get("ts_ms"), int):
            return int(holder["ts_ms"])
    return None
