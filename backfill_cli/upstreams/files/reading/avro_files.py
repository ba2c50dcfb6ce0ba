"""Reads container files of Avro in Spark's Python workers; their columns are those of the schema in each."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from backfill_cli.contracts import Piece
from backfill_cli.decode import block
from backfill_cli.decode.connect import INTS, counted, encoding, own_type, says
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.tokens import written
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import BadData, Hint, UsageError, shell
from backfill_cli.formats.listing import File, Place
from backfill_cli.formats.schemas import Unsupported, arrow_schema
from backfill_cli.model.schema import Columns, field, schema_text
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import RENAME_HINT, reading
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import lines, text_rows
from backfill_cli.upstreams.files.reading.lines import TextPart
from backfill_cli.upstreams.files.reading.text_rows import TextRows

KIND = "avro"
_WIDER = "write the column with a type that holds all its values"


def require_package() -> None:
    """Raises UsageError where numpy is not installed."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        raise UsageError(
            "files of Avro need the package numpy, which is not installed",
            shell("pip install 'backfill-cli[kafka]'"),
        ) from None


def columns(where: Place, file: File) -> Columns:
    """A file's columns, by its header. `counts` in the metadata: what whole numbers count, see connect.counted.

    Raises BadData naming file and column for one that is not kept exactly.
    """
    require_package()
    from backfill_cli.decode import avro
    from backfill_cli.decode.avro import container

    with sound(file.path), reading(file.path, KIND), where.fs.open_input_stream(file.path) as source:
        schema = avro.reader(container.header(source).schema).schema
    if schema["type"] != "struct":
        raise BadData(f"{file.path}: its rows are of type {schema['type']}, not records", _WIDER)
    found: Columns = {}
    for one in schema["fields"]:
        try:
            kind, metadata = own_type(one)
            counts = counted(one, encoding(one, kind))
            told = {"counts": counts} if says(counts) or one["type"] in INTS else {}
            found[one["field"]] = field(one["field"], kind, {**metadata, **told})
        except Unsupported as exc:
            raise BadData(f"{file.path}: column '{one['field']}': {exc}", _WIDER) from exc
    return found


def first_rows(where: Place, file: File, columns: Columns) -> pa.Table:
    """Some rows of a file, of those that can be read."""
    found = next(values(where, file, columns), None)
    return arrow_schema(columns).empty_table() if found is None else pa.table(found)


def values(where: Place, file: File, columns: Columns) -> Iterator[dict[str, pa.Array]]:
    """These columns of a file, some rows at a time; NULL where a row cannot be read."""
    (part,) = lines.parts(where, [file], cut=False)
    rows = TextRows(CsvOptions(), tuple(columns), columns)
    with sound(file.path), reading(file.path, KIND):
        for some in _blocks(rows, part, closed=False):
            yield some.columns


def frame(spark: SparkSession, where: Place, files: Sequence[File], rows: TextRows) -> DataFrame:
    """See text_rows.frame: a file is read by one task."""
    return text_rows.frame(spark, lines.parts(where, files, cut=False), _made, rows)


def _made(rows: TextRows, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    for piece in pieces:
        with sound(piece.what.path, rows.hint):
            yield from text_rows.batches(piece.what, rows, KIND, _blocks(rows, piece.what))


def _blocks(rows: TextRows, part: TextPart, closed: bool = True) -> "Iterator[_Block]":
    from backfill_cli.decode import avro

    for some in records_of(part):
        documents = avro.OfOne(some.schema)
        fields = avro.reader(some.schema).schema["fields"]
        told = {one["field"]: one for one in fields if one["field"] in rows.read}
        schema = schema_text(block.with_told(rows.read, told))
        decode = JsonRows(schema, kept_apart=False, documents=documents, closed=closed)
        yield _Block(rows, decode, some)


def records_of(part: TextPart) -> "Iterator[Records]":
    """A file's records in order, some at a time. Raises Unreadable for a damaged file."""
    from backfill_cli.decode import avro
    from backfill_cli.decode.avro import container

    with part.fs.open_input_stream(part.path, buffer_size=_BUFFER) as source:
        head = container.header(source)
        reader = avro.reader(head.schema)
        first = 0
        for records in container.records(reader.type, container.blocks(source, head)):
            for at in range(0, len(records), _ROWS):
                yield Records(head.schema, reader, first + at, records[at : at + _ROWS])
            first += len(records)


_BUFFER, _ROWS = 1 << 20, 50_000


class Records:
    """Of a text_rows.Block: some records of a file. offset: how many precede them. schema: the writer's.

    null: the bytes of a record that is null; None if there can be none.
    """

    line_end = b""

    def __init__(self, schema: str, reader: Any, offset: int, records: Sequence[bytes]) -> None:
        self.null: bytes | None = reader.null
        self.schema, self._reader, self.offset, self.records = schema, reader, offset, records

    @property
    def places(self) -> pa.Array:
        return pa.array(range(self.offset, self.offset + len(self.records)), pa.int64())

    def record(self, index: int) -> tuple[int, bytes]:
        try:
            return index, written(self._reader.token(self.records[index])).encode()
        except Unreadable:
            return index, self.records[index]

    def object(self, index: int) -> Mapping[str, object]:
        """A record's members; none if it cannot be read."""
        try:
            told: Mapping[str, object] = self._reader.token(self.records[index]) or {}
        except Unreadable:
            return {}
        return told


class _Block:
    """See text_rows.Block."""

    line_end = b""

    def __init__(self, rows: TextRows, decode: JsonRows, records: Records) -> None:
        self.offset, self._of, self._key = records.offset, records, rows.key
        self.hint: Hint | str = rows.hint
        decoded = decode(records.records)
        self.columns = decoded.columns
        errors = [] if decoded.error is None else decoded.error.to_pylist()
        self.faults = {index: error for index, error in enumerate(errors) if error is not None}

    @property
    def places(self) -> pa.Array:
        return self._of.places

    def record(self, index: int) -> tuple[int, bytes]:
        return self._of.record(index)

    def key(self, index: int) -> Mapping[str, object]:
        told = self._of.object(index)
        return {name: told[name] for name in self._key if told.get(name) is not None}


@contextmanager
def sound(path: str, hint: Hint | str = RENAME_HINT) -> Iterator[None]:
    """What is wrong with the file itself names it."""
    try:
        yield
    except Unreadable as exc:
        raise BadData(f"{path}: not a complete {KIND} file: {exc}", hint) from exc
    except Unsupported as exc:
        raise BadData(f"{path}: {exc}", hint) from exc
