"""Reads Debezium change events: one JSON envelope per line, with or without the schema block, or records of Avro.

An envelope holds `op` (c, r: new row; u: changed; d: deleted; t: truncated), `before`, `after`, `source.ts_ms` and
`ts_ms`. With the schema block it is `{"schema": …, "payload": envelope}`. Blank and `null` lines (tombstones) add
nothing to the delete before them.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa

from backfill_cli.contracts import ArrowTasks, Piece, TableSpec, own
from backfill_cli.contracts.decoder import Decoded, Fault
from backfill_cli.decode import messages, order, unwrapped
from backfill_cli.decode.block import MALFORMED, row_fields, with_told, without_told
from backfill_cli.decode.connect import Connect, Malformed, counted, encoding, holds, own_type
from backfill_cli.decode.debezium import NO_BLOCK, Envelopes
from backfill_cli.decode.debezium_forms import Lack, lacks
from backfill_cli.decode.debezium_forms import undeclared as undeclared_columns
from backfill_cli.decode.documents import Documents
from backfill_cli.decode.encodings import Encoding, schemaless, textual
from backfill_cli.decode.json_documents import IN_BLOCKS
from backfill_cli.decode.merged import merged, within
from backfill_cli.decode.order import can_be_late, comparable, is_placed
from backfill_cli.decode.source_table import Known, source_of
from backfill_cli.errors import START_OVER, BadData, ConfigError, Hint, in_config, sql
from backfill_cli.formats import skip_counts
from backfill_cli.formats.compute import pc
from backfill_cli.formats.listing import File, Place
from backfill_cli.formats.schemas import Unsupported
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns, SparkType, columns_of, field, schema_text
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.failures import CHANGES_HINT, OR_QUARANTINE, SHOWN
from backfill_cli.spark.names import quoted
from backfill_cli.upstreams.files.changes import order as file_order
from backfill_cli.upstreams.files.changes.change_format import (
    ChangeFormat,
    Inspected,
    Run,
    declared,
    nothing,
    undeclared,
)
from backfill_cli.upstreams.files.options import ChangesOptions, extension
from backfill_cli.upstreams.files.reading import avro_envelopes, avro_files, json_rows, lines, text_rows
from backfill_cli.upstreams.files.reading.footers import THREADS
from backfill_cli.upstreams.files.reading.lines import TextPart
from backfill_cli.upstreams.files.reading.text_rows import TextRows

_ONE_FORM = "divide the file where that changes, in the order of its lines: one not yet applied may be replaced"
_MIXED = "some lines have a schema block and some do not"
_NEW_SNAPSHOT = (
    "take a new snapshot, set upstream.snapshot.as_of to the newest change file before it; then " + START_OVER
)
_TABLES = in_config('name the tables whose changes are meant, as in upstream.changes.tables = ["public.orders"]')
_AS_TEXT = in_config(
    'set decimal.handling.mode = string in the connector and upstream.changes.decimals = "string", and write such '
    "changes again"
)
_DECIMALS = in_config(
    'set upstream.changes.decimals = "precise", or "double", if they are written so; or ' + _AS_TEXT
)
_HINTS: Mapping[str, Hint | str] = {
    Fault.OTHER_TABLE: _TABLES,
    Fault.ONE_OF_SEVERAL: in_config(
        "name the table in full, as the only one of upstream.changes.tables; if several are meant, which rows a "
        "truncate removes is not known: "
    )
    + _NEW_SNAPSHOT,
    Fault.TRUNCATED: in_config("if the topic has only one partition, set upstream.changes.path to its folder")
    + "; otherwise take a new snapshot, and move the change files before it away; then "
    + START_OVER,
    Fault.NOT_SENT: "at the source: " + sql("ALTER TABLE … REPLICA IDENTITY FULL") + "; then " + _NEW_SNAPSHOT,
    Fault.TIME_UNIT: in_config('set upstream.changes.timestamps = "ms", or "us", or "ns"'),
    Fault.DECIMAL_FORM: "a NUMERIC without a scale is written as {scale, value}, which can be read only with "
    "schema blocks (value.converter.schemas.enable); or " + _AS_TEXT,
    Fault.SCHEMA_BLOCK: _ONE_FORM,
    Fault.BLOCK_COLUMNS: _ONE_FORM,
    Fault.COLUMNS: CHANGES_HINT + "; if the table had other columns when the line was written: " + _NEW_SNAPSHOT,
}
"""What to do about the faults of a line; for others: correct the file."""

_Lines = Callable[[Place, File], Iterator[str]]

_NOTHING: Mapping[str, Any] = {"payload": {}, "schema": {}}
"""Stands for a line that is quarantined: it says of no column how it is written."""

_LAST = ": the last line with a row"

_SAMPLED = 20
"""Lines read at each end of a file to see how its values are written."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """How one file writes its lines. told: each column's field in the schema block, None without a block.

    late: whether the order of the lines can prove that the source checks its key late. columns: at the file's end;
    none if it shows none. required: those that every line has. added: those that lines have from one of them on.
    documents: the encoding of its lines.
    """

    told: Mapping[str, Connect] | None
    late: bool
    columns: frozenset[str]
    required: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    documents: Documents = IN_BLOCKS

    @property
    def key(self) -> str:
        return json.dumps(self.told, sort_keys=True)


class Debezium(ChangeFormat):
    """One table's Debezium files. See change_format.ChangeFormat. ordered: all of its changes have one order."""

    before_images: ClassVar[bool] = True
    parts: ClassVar[bool] = True

    def __init__(
        self, table: TableSpec, options: ChangesOptions, declared: Columns, quarantines: bool = False
    ) -> None:
        self._table, self._options, self._declared = table, options, declared
        self._quarantines, self._way_on = quarantines, Hint() if options.epoch else OR_QUARANTINE
        self.ordered = True
        self._known = Known(tuple(one.replace("{table}", table.name) for one in options.tables))

    def expect(self, source: str | None, folder: str) -> None:
        """Refuse lines of another table from now on. source: the folder's table at the start, None if empty."""
        self._known = replace(self._known, source=source, named=(folder.rpartition("/")[2], self._table.name))

    def source(self, where: Place, runs: Iterable[Sequence[File]]) -> str | None:
        """The table whose changes these files hold, by each run's first and last line; None if they name none.

        Raises ConfigError if there are several and the options do not say which is meant.
        """
        if self._options.tables:
            return None
        found = set[str]()
        for file, read in (
            one for files in runs if files for one in ((files[0], self._forward), (files[-1], self._last))
        ):
            payloads = map(payload_of, self._objects(where, file, read))
            found.add(source_of(next((one for one in payloads if one and messages.kind_of(one) is None), {})))
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
        ends = dict.fromkeys((*files[:1], *files[-1:]))
        shown = [row for file in ends for row in self._blockless(where, file)]
        declared = {**known, **self._declared}
        found = lacks(declared, shown, self._options.timestamps, self._options.decimals, "upstream.changes")
        new = undeclared_columns(declared, shown)
        # a declaration helps neither a name like another one, nor a line with more columns than the last one
        alike = {name for _, name in own.twins((*declared, *new))}
        last = frozenset[str]().union(*(self._shown(where, one, self._last, self._quarantines) for one in ends))
        return found, {name: kind for name, kind in new.items() if name in last - alike}

    def _blockless(self, where: Place, file: File) -> list[Mapping[str, Any]]:
        """Rows of the file's first and last lines that have no schema block."""
        found: list[Mapping[str, Any]] = []
        for read in (self._forward, self._last):
            for envelope in islice(self._objects(where, file, read, numbers=float), _SAMPLED):
                payload = payload_of(envelope) or {}
                if told_of(envelope) is None and self._known.reads(source_of(payload)):
                    images = payload.get("before"), payload.get("after")
                    found += [row for row in images if isinstance(row, dict)]
        return found

    def inspect(self, where: Place, file: File, known: Columns, applied: bool = False) -> Inspected:
        if self._options.file_format is None and extension(file.name) == "parquet":
            raise BadData(
                f"{file.path}: changes of Debezium are read from JSON or Avro files, not from Parquet",
                "let Kafka Connect write JsonFormat or AvroFormat, with one record per line or container files",
            )
        ms: int | None = None
        # back to the last row image: any number of deletes, which have none, can follow it
        for number, envelope in enumerate(self._backwards(where, file, applied or self._quarantines)):
            payload = payload_of(envelope)
            if payload is None:
                continue
            ms = source_ms(payload) if number == 0 else ms
            if not self._known.reads(source_of(payload)) or messages.kind_of(payload) is not None:
                continue
            told, image = told_of(envelope), payload.get("after")
            if told is not None:
                columns = self._told_columns(file, told, known)
                return Inspected(file, None, ms, columns, shown_in=_LAST, counts=_counts(told, columns))
            if isinstance(image, dict):
                return Inspected(file, None, ms, self._shown_columns(file, image, known), shown_in=_LAST)
        return Inspected(file, None, ms, None)

    def _objects(
        self, where: Place, file: File, read: _Lines, numbers: Callable[[str], Any] = str
    ) -> Iterator[dict[str, Any]]:
        """A file's lines as envelopes, without those that are quarantined. read: `_forward` or `_last`."""
        return self._readable(where, file, read(where, file), self._quarantines, numbers)

    def _readable(
        self,
        where: Place,
        file: File,
        some: Iterable[str],
        skip: bool,
        numbers: Callable[[str], Any] = str,
    ) -> Iterator[dict[str, Any]]:
        """These lines as objects. skip: without those that are none, or whose schema block is not Connect's."""
        for line in some:
            for envelope in lines.objects(where, file, [line], skip, numbers, self._way_on):
                try:
                    told_of(envelope)
                except MALFORMED as exc:
                    if not skip:
                        raise self._refused(where, file, line, NO_BLOCK) from exc
                else:
                    yield envelope

    def _refused(self, where: Place, file: File, line: str, why: str, hint: Hint | str = "") -> BadData:
        if self._is_avro(file):
            text = f"{file.path}: a record: {why}: {avro_envelopes.shown(line)[:SHOWN]}"
            return BadData(text, Hint.of(hint or CHANGES_HINT) + self._way_on)
        return lines.refused(where, file, line, why, hint, self._way_on)

    def _is_avro(self, file: File) -> bool:
        return self._options.reads_as(file.name) == "avro"

    def _forward(self, where: Place, file: File) -> Iterator[str]:
        """A file's lines; of Avro, its records as such."""
        if self._is_avro(file):
            return avro_envelopes.forward(where, file)
        return lines.forward(where, file, "debezium")

    def count(self, where: Place, file: File) -> int:
        return avro_envelopes.count(where, file) if self._is_avro(file) else lines.count(where, file, "debezium")

    def _last(self, where: Place, file: File) -> Iterator[str]:
        """The same from the last one backwards."""
        return avro_envelopes.last(where, file) if self._is_avro(file) else lines.last(where, file, "debezium")

    def _documents(self, where: Place, file: File) -> Documents:
        if not self._is_avro(file):
            return IN_BLOCKS
        from backfill_cli.decode import avro

        return avro.OfOne(avro_envelopes.schema_of(where, file))

    def _backwards(self, where: Place, file: File, skip: bool) -> Iterator[dict[str, Any]]:
        """The same from the last one, tombstones among them. Raises BadData for what is no change of the table.

        skip: leave out what cannot be read.
        """
        for line in self._last(where, file):
            for envelope in self._readable(where, file, [line], skip):
                try:
                    self._refuse_other(where, file, payload_of(envelope), line)
                except BadData:
                    if not skip:
                        raise
                else:
                    yield envelope

    def _refuse_other(self, where: Place, file: File, payload: Mapping[str, Any] | None, line: str) -> None:
        if payload is None:
            return
        told = other_than_change(payload)
        of = source_of(payload)
        read = self._known.reads(of) and messages.kind_of(payload) is None
        if told is None and read and self._known.is_other(of):
            told = self._known.fault(of), _TABLES
        if told is not None:
            raise self._refused(where, file, line, *told)

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
            except Malformed as exc:
                raise BadData(f"{file.path}: column '{name}': {NO_BLOCK}", CHANGES_HINT) from exc
            except Unsupported as exc:
                raise BadData(
                    f"{file.path}: column '{name}': {exc}",
                    "declare it with a type that fits, as "
                    + declared({name: "DECIMAL(38,10)"})
                    + "; or leave it out of the connector (column.exclude.list), and write the file again without "
                    "it",
                ) from exc
            except MALFORMED as exc:
                raise BadData(f"{file.path}: column '{name}': {NO_BLOCK}", CHANGES_HINT) from exc
        return columns

    def _shown_columns(self, file: File, image: Mapping[str, Any], known: Columns) -> Columns:
        """The columns from a row of a file without schema block, which carries no types."""
        columns: Columns = {name: column for name, column in known.items() if name in image}
        for name in image:
            if name not in columns and name not in self._declared:
                raise undeclared(file, name, known)
            columns.setdefault(name, self._declared.get(name, {}))
        return columns

    def frame(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        columns: Columns,
        known: Columns,
        before: File | None = None,
        skips: skip_counts.Place | None = None,
    ) -> DataFrame | None:
        begun = before if before is not None and self._goes_on(where, before, files[0]) else None
        places = file_order.places([*([begun] if begun else []), *files])
        parts = [
            self._of_shape(spark, where, shapes, alike, columns, begun, places, skips)
            for shapes, alike in self._shapes(where, files, known, begun, skips)
            if alike != [begun]
        ]
        if not parts:
            return None
        found = balanced(lambda a, b: a.unionByName(b), parts)
        return found.where(_file_of(places) != begun.name) if begun else found

    def tasks(
        self,
        where: Place,
        runs: Sequence[Run],
        columns: Columns,
        cores: int,
        skips: skip_counts.Place | None = None,
    ) -> ArrowTasks | None:
        shapes = [one for run in runs for one in self._shapes(where, run.files, run.known, skips=skips)]
        if any(one.late for of_files, _ in shapes for one in of_files):
            return None
        reads: dict[str, _Reading] = {}
        for of_files, alike in shapes:
            reads |= _readings(self._envelopes(alike[0], of_files, columns), of_files, alike, skips)
        if not reads:
            return nothing(columns)
        rows = self._rows(next(iter(reads.values())).decode, self._quarantines)
        pieces = list[tuple[Piece, int]]()
        for run in runs:
            places = file_order.places(run.files)
            for part in _parts(where, [file for file in run.files if file.name in reads], reads):
                what = (reads[part.name], rows, part, places.get(part.name, part.name))
                pieces.append((Piece(0, what), lines.rows_of(part)))
        names = {own.OP: "string", own.SEQ: _SEQ, own.MS: "long"}
        marks = {name: field(name, kind) for name, kind in names.items()} | text_rows.quarantined(rows)
        marks |= {own.UNSENT: rows.columns[own.UNSENT]}
        return ArrowTasks(_changes, arrow_tasks.of_log(pieces, cores), schema_text(marks | columns))

    def _shapes(
        self,
        where: Place,
        files: Sequence[File],
        known: Iterable[str],
        begun: File | None = None,
        skips: skip_counts.Place | None = None,
    ) -> list[tuple[list[_Shape], list[File]]]:
        """The files by what their schema blocks say, without those that have no change of the tables read.

        known: the columns before these files. begun: an applied one that precedes them, of which lines may have
        been quarantined. skips: if what is skipped is counted, files of nothing else are among them.
        """
        groups: dict[str, tuple[list[_Shape], list[File]]] = {}
        read = [*([begun] if begun else []), *files]
        before = frozenset(known)
        with ThreadPoolExecutor(THREADS) as pool:
            found = pool.map(lambda file: self._shape(where, file, file == begun or self._quarantines), read)
            for file, shape in zip(read, found, strict=True):
                if shape is None:
                    if skips is None or file == begun:
                        continue
                    shape = _Shape({}, False, frozenset(), documents=self._documents(where, file))
                if file != begun:
                    shape = self._since(where, file, shape, before)
                    before |= shape.columns
                shapes, alike = groups.setdefault(shape.key, ([], []))
                shapes.append(shape)
                alike.append(file)
        return list(groups.values())

    def _since(self, where: Place, file: File, shape: _Shape, before: frozenset[str]) -> _Shape:
        """The shape of a file that follows when there were these columns."""
        added = shape.columns - before
        begin = self._shown(where, file, self._forward, self._quarantines) & added if added else frozenset[str]()
        return replace(shape, required=before | begin, added=added - begin)

    def _of_shape(
        self,
        spark: SparkSession,
        where: Place,
        shapes: Sequence[_Shape],
        files: Sequence[File],
        columns: Columns,
        begun: File | None,
        places: Mapping[str, str],
        skips: skip_counts.Place | None,
    ) -> DataFrame:
        """The changes of files of one shape. begun: an applied one, whose changes count for their order."""
        decode = self._envelopes(files[0], shapes, columns)
        reads = _readings(decode, shapes, files, skips)
        after = [file for file in files if file != begun]
        changes = self._read(spark, where, after, reads, self._quarantines, places)
        if begun is not None and begun in files:
            as_applied = {begun.name: _Reading(replace(decode, documents=self._documents(where, begun)))}
            applied = self._read(spark, where, [begun], as_applied, True, places)
            good = applied.where(F.col(own.QUARANTINED).isNull()).drop(own.QUARANTINED)
            changes = changes.unionByName(good, allowMissingColumns=True)
        if decode.images is not None:
            has_block = shapes[0].told is not None
            changes = order.refusing(changes, self._table.key, decode.images, has_block, _named(places))
        return changes.drop(own.LINE)

    def _envelopes(self, file: File, shapes: Sequence[_Shape], columns: Columns) -> Envelopes:
        """What reads the lines of files of one shape. file: the first of them."""
        told, key, epoch = shapes[0].told, self._table.key, self._options.epoch
        how = self._encodings(file, told, columns)
        return Envelopes(
            schema_text(columns if told is None else with_told(columns, told)),
            key,
            tuple(how.items()),
            None,
            self._known,
            blockless=None if told is None else _MIXED,
            ordered=self.ordered,
            images=comparable(key, columns, how) if any(one.late for one in shapes) else None,
            epoch=epoch and epoch.removeprefix("payload."),  # with a schema block, the name can begin outside
        )

    def _rows(self, decode: Envelopes, quarantines: bool) -> TextRows:
        """What workers make of lines: `_MARKS`, `Decode.beside`, columns…"""
        columns = without_told(columns_of(decode.schema))
        read = {name: field(name, kind) for name, kind in _MARKS.items()} | decode.beside | columns
        csv, names = self._options.csv, tuple(columns)
        key, way_on, domain = decode.key, self._way_on, self._table.domain
        return TextRows(csv, names, read, CHANGES_HINT, key, None, quarantines, None, way_on, domain=domain)

    def _read(
        self,
        spark: SparkSession,
        where: Place,
        files: Sequence[File],
        reads: "Mapping[str, _Reading]",
        quarantines: bool,
        places: Mapping[str, str],
    ) -> DataFrame:
        """`own.OP, own.SEQ, own.MS, own.LINE, Decode.beside, columns…` of whole files, with `own.QUARANTINED` if
        asked for. reads: of each file, by its name; all have the same columns. places: see order.py."""
        decode = next(iter(reads.values())).decode
        columns, rows = columns_of(decode.schema), self._rows(decode, quarantines)
        found = text_rows.frame(spark, _parts(where, files, reads), partial(_made, reads), rows)
        found = file_order.placed(found, places)
        seq = F.struct(F.col(own.AT).alias("at"), own.SUB).alias(own.SEQ)
        more = (own.QUARANTINED,) if quarantines else ()
        return found.select(own.OP, seq, own.MS, own.LINE, *more, *decode.beside, *map(quoted, columns))

    def _shape(self, where: Place, file: File, skip: bool) -> _Shape | None:
        """The shape from the first and the last line: a column that was added in between is in the last.

        None if the file has no changes of the tables that are read. skip: see lines.objects.
        """
        first = self._first_read(where, file, self._forward, skip)
        last = None if first is None else self._first_read(where, file, self._last, skip)
        if first is None or last is None:
            return None
        late = can_be_late(payload for one in (first, last) if (payload := payload_of(one)) is not None)
        begin, end = told_of(first), told_of(last)
        if (begin is None) != (end is None):
            raise BadData(f"{file.path}: {_MIXED}", _ONE_FORM)
        columns = columns_in(last, self._known) or self._shown(where, file, self._last, skip)
        if begin is None or end is None:
            return _Shape(None, late, columns)
        for name in begin.keys() & end.keys():
            if begin[name] != end[name]:
                raise BadData(f"{file.path}: column '{name}' changes its type within the file", _ONE_FORM)
        return _Shape(begin | end, late, columns, documents=self._documents(where, file))

    def _shown(self, where: Place, file: File, read: _Lines, skip: bool) -> frozenset[str]:
        """The columns of the first line that shows any. skip: see lines.objects."""
        envelopes = self._readable(where, file, read(where, file), skip)
        return next(filter(None, (columns_in(one, self._known) for one in envelopes)), frozenset())

    def _first_read(self, where: Place, file: File, read: _Lines, skip: bool) -> Mapping[str, Any] | None:
        """The first change of a table that is read, or else any line that is quarantined."""
        bad = None
        for line in read(where, file):
            envelope = next(self._readable(where, file, [line], skip), {})
            payload = payload_of(envelope)
            if payload is None:
                continue
            of = source_of(payload)
            if self._known.reads(of) and messages.kind_of(payload) is None:
                if not skip or ("op" in payload and not self._known.is_other(of)):
                    return envelope
                bad = _NOTHING
        return bad

    def _goes_on(self, where: Place, before: File, file: File) -> bool:
        """Whether the last transaction of a file is the first one of the next; reads one line of each."""
        first = payload_of(next(self._objects(where, file, self._forward), {})) or {}
        if not is_placed(first):
            return False
        applied = self._readable(where, before, self._last(where, before), True)
        last = payload_of(next(applied, {})) or {}
        return is_placed(last) and last["source"]["txId"] == first["source"]["txId"]

    def _encodings(
        self, file: File, told: Mapping[str, Connect] | None, columns: Columns
    ) -> Mapping[str, Encoding]:
        """How each column is written in a file. Raises BadData for one that cannot be read into its type."""
        found = {}
        for name, column in columns.items():
            try:
                found[name] = self._encoding(told, name, column["type"])
            except Unsupported as exc:
                what = f"{file.path}: column '{name}': {exc}"
                raise BadData(what, _DECIMALS if told is None else _NEW_SNAPSHOT) from exc
        return found

    def _encoding(self, told: Mapping[str, Connect] | None, name: str, target: SparkType) -> Encoding:
        if told is None:
            return schemaless(target, self._options.timestamps, self._options.decimals)
        # in a file older than the column, the column is NULL
        return encoding(told[name], target) if name in told else textual(target)


@dataclass(frozen=True, slots=True)
class _Reading:
    """How the lines of a file are read. added: see _Shape. skips: where what is skipped is told."""

    decode: Envelopes
    added: frozenset[str] = frozenset()
    skips: skip_counts.Place | None = None

    def __call__(self, records: Sequence[bytes | None], seen: set[str], skipped: "Counter[str]") -> Decoded:
        """The changes of the next lines. seen: which of the added columns the lines before have; becomes larger,
        as `skipped` does.

        A line that lacks one of those is a fault.
        """
        found = self._decoded(records, seen)
        skipped.update(found.skipped)
        return found

    def _decoded(self, records: Sequence[bytes | None], seen: set[str]) -> Decoded:
        if not self.added:
            return self.decode(records)
        parts, begin = list[Decoded](), 0
        for index, record in enumerate(records):
            more = _shown_by(record or b"", self.decode.known) & self.added - seen
            if more:
                parts.append(self._from(begin, records[begin:index], seen))
                begin = index
                seen |= more
        return merged([*parts, self._from(begin, records[begin:], seen)])

    def _from(self, begin: int, records: Sequence[bytes | None], seen: set[str]) -> Decoded:
        found = replace(self.decode, required=self.decode.required | seen)(records)
        return replace(found, record=pc.add(found.record, pa.scalar(begin, pa.int32())))


def _shown_by(record: bytes, known: Known) -> frozenset[str]:
    with suppress(*MALFORMED):
        return columns_in(json.loads(record), known)
    return frozenset()


def _readings(
    decode: Envelopes, shapes: Sequence[_Shape], files: Sequence[File], skips: skip_counts.Place | None
) -> dict[str, _Reading]:
    """By the names of these files, which have one form."""
    alike: dict[_Reading, _Reading] = {}
    found = {}
    for file, shape in zip(files, shapes, strict=True):
        allowed = shape.required | shape.added
        of_lines = replace(decode, allowed=allowed, required=shape.required, documents=shape.documents)
        one = _Reading(of_lines, shape.added, skips)
        found[file.name] = alike.setdefault(one, one)
    return found


def _parts(where: Place, files: Sequence[File], reads: Mapping[str, _Reading]) -> Iterator[TextPart]:
    """One to which columns are added is one part: what a line must have depends on the lines before it."""
    for file in files:
        read = reads[file.name]
        yield from lines.parts(where, [file], cut=not read.added and read.decode.documents is IN_BLOCKS)


_MARKS = {own.SUB: "integer", own.LINE: "long", own.OP: "string", own.MS: "long"}
"""What workers tell of each change. `own.SUB`: its number within its line. `own.LINE`: the line's, from 1; NULL
beyond a file's first part, where nobody has counted the lines."""


def _file_of(places: Mapping[str, str]) -> Column:
    """The name of a change's file. places: see order.py."""
    return file_order.name_at(F.col(own.SEQ)["at"]["file"], places)


def _named(places: Mapping[str, str]) -> Column:
    """A change's line, as errors name it."""
    at = F.col(own.SEQ)["at"]
    line = F.coalesce(
        F.concat(F.lit("line "), F.col(own.LINE).cast("string")),
        F.concat(F.lit("the line at byte "), at["row"].cast("string")),
    )
    return F.concat(_file_of(places), F.lit(": "), line)


_SEQ: SparkType = {
    "type": "struct",
    "fields": [
        field("at", {"type": "struct", "fields": [field("file", "string"), field("row", "long")]}),
        field(own.SUB, "integer"),
    ],
}


def _changes(what: tuple[_Reading, TextRows, TextPart, str]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker: `own.OP, own.SEQ, own.MS, columns…` of a part of a file, perhaps `own.QUARANTINED`.

    The last of `what`: what the file is ordered by.
    """
    read, rows, part, place = what
    names = [*text_rows.quarantined(rows), own.UNSENT, *columns_of(read.decode.schema)]
    for batch in _made({part.name: read}, rows, (Piece(0, part),)):
        file = pa.repeat(pa.scalar(place, pa.string()), batch.num_rows)
        at = pa.StructArray.from_arrays([file, batch.column(own.ROW)], ["file", "row"])
        seq = pa.StructArray.from_arrays([at, batch.column(own.SUB)], ["at", own.SUB])
        marks = {own.OP: batch.column(own.OP), own.SEQ: seq, own.MS: batch.column(own.MS)}
        yield pa.RecordBatch.from_pydict(marks | {name: batch.column(name) for name in names})


def _made(reads: Mapping[str, _Reading], rows: TextRows, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker. reads: of each file, by its name."""
    for piece in pieces:
        part, reading, skipped = piece.what, reads[piece.what.name], Counter[str]()
        if reading.decode.documents == IN_BLOCKS:
            yield from text_rows.batches(part, rows, "json", _blocks(reading, rows, part, skipped))
        else:
            with avro_files.sound(part.path, rows.hint):
                yield from text_rows.batches(part, rows, "avro", _blocks_of_avro(reading, rows, part, skipped))
        if reading.skips is not None:
            reading.skips.tell(hashlib.sha256(f"{part.path} {part.start}".encode()).hexdigest()[:32], skipped)


def _blocks(reading: _Reading, rows: TextRows, part: TextPart, skipped: "Counter[str]") -> "Iterator[_Block]":
    before = 0 if part.start == 0 else None
    read = partial(reading, seen=set(), skipped=skipped)
    for offset, block in json_rows.blocks(part):
        if block.strip():
            some = json_rows.Lines(offset, block)
            yield _Block(rows, read, some, some.numbers(before), some.unlike)
        before = None if before is None else before + block.count(b"\n")


def _blocks_of_avro(
    reading: _Reading, rows: TextRows, part: TextPart, skipped: "Counter[str]"
) -> "Iterator[_Block]":
    read = partial(reading, seen=set(), skipped=skipped)
    for some in avro_files.records_of(part):
        yield _Block(rows, read, some, [one + 1 for one in some.places.to_pylist()], {})


class _Block:
    """See text_rows.Block: the changes of some lines. numbers: the lines', None where they are not known.

    unlike: why a line is no JSON, by its index.
    """

    def __init__(
        self,
        rows: TextRows,
        read: Callable[[Sequence[bytes | None]], Decoded],
        some: json_rows.Lines | avro_files.Records,
        numbers: Sequence[int | None],
        unlike: Mapping[int, str],
    ) -> None:
        self.offset, self.line_end, self._lines = some.offset, some.line_end, some
        self._key = rows.key
        found = read([None if line == some.null else line for line in some.records])
        assert found.record is not None, "a line can be no change, or two"
        self._of = found.record
        count = len(self._of)
        marks = {
            own.SUB: within(found),
            own.LINE: pa.array(numbers, pa.int64()).take(self._of),
            own.OP: pa.repeat(pa.scalar("U"), count) if found.op is None else found.op,
            own.MS: pa.nulls(count, pa.int64()) if found.ms is None else found.ms,
        }
        self.columns = marks | found.beside | found.columns
        errors = [] if found.error is None else found.error.to_pylist()
        self.faults = {
            index: unlike.get(self._of[index].as_py(), error)
            for index, error in enumerate(errors)
            if error is not None
        }
        self.hint = rows.hint
        if self.faults and found.fault is not None:
            self.hint = _HINTS.get(found.fault[min(self.faults)].as_py(), rows.hint)

    @property
    def places(self) -> pa.Array:
        return self._lines.places.take(self._of)

    def record(self, index: int) -> tuple[int, bytes]:
        return self._lines.record(self._of[index].as_py())

    def key(self, index: int) -> Mapping[str, object]:
        event = payload_of(self._lines.object(self._of[index].as_py())) or {}
        image = event.get("before" if event.get("op") == "d" else "after")
        row = image if isinstance(image, dict) else {}
        return {name: row[name] for name in self._key if row.get(name) is not None}


def _counts(told: Mapping[str, Connect], columns: Columns) -> dict[str, Any]:
    """What whole numbers count, by column; of columns that can hold some."""
    return {
        name: counted(told[name], encoding(told[name], column["type"]))
        for name, column in columns.items()
        if isinstance(column["type"], dict) or holds(column["type"], "byte")
    }


def _fits(told: Connect, target: SparkType) -> bool:
    try:
        encoding(told, target)
    except Unsupported:
        return False
    return True


def other_than_change(payload: Mapping[str, Any]) -> tuple[str, Hint | str] | None:
    """What a line is that is not an envelope of a table's row, and what to do; None for an envelope of one."""
    if {"updateDescription", "patch", "filter"} & payload.keys() or isinstance(payload.get("after"), str):
        return (
            "an envelope of Debezium's MongoDB connector, which holds documents, not rows",
            "flatten documents before they land; only envelopes of relational connectors are read",
        )
    if "op" in payload or messages.kind_of(payload) is not None:
        return None
    if any(name in payload for name in unwrapped.ADDED):
        return (
            "flattened by Debezium's ExtractNewRecordState, so without the old row",
            "remove the transform `unwrap` from the connector: only whole envelopes are read",
        )
    return (
        "a line without 'op' is not a Debezium envelope",
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
    return row_fields(envelope.get("schema") or {})


def columns_in(envelope: Mapping[str, Any], known: Known) -> frozenset[str]:
    """The columns that a line shows, by its schema block if it has one; none if it is of another table."""
    payload = payload_of(envelope) or {}
    of = source_of(payload)
    changes = payload.get("op") is not None and messages.kind_of(payload) is None
    if not changes or not known.reads(of) or known.is_other(of):
        return frozenset()
    told, image = told_of(envelope), payload.get("after")
    if told is not None:
        return frozenset(told)
    return frozenset(image) if isinstance(image, dict) else frozenset()


def source_ms(payload: Mapping[str, Any]) -> int | None:
    """When the source wrote the change, else when the connector read it; None if the line has neither."""
    source = payload.get("source")
    for holder in (source if isinstance(source, dict) else {}, payload):
        if isinstance(holder.get("ts_ms"), int):
            return int(holder["ts_ms"])
    return None
