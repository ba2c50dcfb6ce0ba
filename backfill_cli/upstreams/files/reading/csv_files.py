"""Reads CSV files in Spark's Python workers: split into Arrow columns of text, which become typed ones exactly.

pyarrow silently accepts text after a closing quote, and a quote that is never closed; therefore a grammar checks
blocks with quotes before pyarrow parses them.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from itertools import islice, repeat

import pyarrow as pa
import pyarrow.csv as pacsv

from backfill_cli.contracts import Piece
from backfill_cli.decode import texts
from backfill_cli.decode.tokens import NO_TEXT
from backfill_cli.errors import START_OVER, BadData, Hint, in_config
from backfill_cli.formats.listing import File, Place
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns
from backfill_cli.model.units import near_names
from backfill_cli.spark.api import DataFrame, SparkSession
from backfill_cli.spark.failures import SHOWN, reading
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import lines, text_rows
from backfill_cli.upstreams.files.reading.lines import TextPart, chunks, is_text, opened
from backfill_cli.upstreams.files.reading.text_rows import TextRows

_LAST_LINES = 1_000
"""Lines searched backwards for the start of a file's last record."""

_THREADS = 16

_BLOCK = 1 << 16
_QUOTE_IT = "correct the line; fields that contain the delimiter must be quoted"
_AS_UTF8 = "write the file as UTF-8"
_ENDED = re.compile(rb"[\r\n]+(?=[^\r\n])")
"""The end of a line, with blank lines after it."""


def fields(line: str, options: CsvOptions) -> list[str]:
    """The fields of one record."""
    doubled = options.escape == options.quote
    csv.field_size_limit(sys.maxsize)
    reader = csv.reader(
        io.StringIO(line, newline="") if options.multi_line else [line],
        delimiter=options.delimiter,
        quotechar=options.quote,
        doublequote=doubled,
        escapechar=None if doubled else options.escape,
    )
    return next(reader, [])


def header(where: Place, file: File, options: CsvOptions) -> list[str]:
    """The column names in a file's first line; none in an empty file. Raises BadData for a duplicate name."""
    line = lines.first(where, file, "csv")
    with reading(file.path, "csv"):
        names = fields(line.removeprefix("\ufeff"), options) if line is not None else []
    if not is_text("".join(names)):
        raise BadData(f"{file.path}: its header is {NO_TEXT}", _AS_UTF8 + options.then)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadData(
            f"{file.path}: duplicate column '{twice[0]}' in the header", "give each column a different name"
        )
    return names


def last_record(
    where: Place,
    file: File,
    options: CsvOptions,
    count: int,
    way_on: Hint = Hint(),  # noqa: B008
) -> list[str] | None:
    """The fields of the last record, NULL as the empty text; None if the file is empty or the record is not found.

    Raises BadData if the last line does not have `count` fields. way_on: what else can be done about it.
    """
    record, values = "", None
    for line in islice(lines.last(where, file, "csv"), _LAST_LINES if options.multi_line else 1):
        record = f"{line}\n{record}" if record else line
        if options.multi_line and record.count(options.quote) % 2:
            continue
        with reading(file.path, "csv"):
            values = fields(record, options)
        if len(values) == count or not options.multi_line:
            break
    if values is not None and len(values) != count and not options.multi_line:
        raise BadData(
            f"{file.path}: its last line has {len(values)} fields, not {count}",
            in_config(
                "files without a header must have the snapshot's columns in the same order; if they "
                f"have a header, set {options.at}.header = true; if fields contain line ends, set "
                f"{options.at}.multi_line = true"
            )
            + way_on,
        )
    return values if values is not None and len(values) == count else None


def refuse_other_columns(
    where: Place, files: Sequence[File], options: CsvOptions, columns: Columns, ignored: Sequence[str]
) -> None:
    """Raises BadData for a declared column that is in no header, and for a header column that is not declared."""
    shown: set[str] = set()
    for file, names in zip(files, _headers(where, files, options), strict=True):
        shown.update(names)
        for name in names:
            if name not in columns and name not in ignored:
                near = near_names(name, [c for c in columns if c not in names])
                hint = f"write it there instead of '{near[0]}'" if near else "declare it there"
                raise BadData(
                    f"{file.path}: column '{name}' is not in upstream.snapshot.schema",
                    in_config(f'{hint}, or omit it on purpose: upstream.snapshot.ignore = ["{name}"]'),
                )
    absent = [name for name in columns if name not in shown]
    if shown and absent:
        raise BadData(
            f"{where.shown}: column '{absent[0]}' of upstream.snapshot.schema is in no file's header",
            f"write a name of the headers there, or remove it: the headers have {', '.join(sorted(shown))}",
        )


def _headers(where: Place, files: Sequence[File], options: CsvOptions) -> Iterator[tuple[str, ...]]:
    """The header of each file, several read at once."""
    with ThreadPoolExecutor(_THREADS) as pool:
        yield from pool.map(lambda file: tuple(header(where, file, options)), files)


def frame(spark: SparkSession, where: Place, files: Sequence[File], rows: TextRows) -> DataFrame:
    """See text_rows.frame. Without a header the files have the fields that `rows` names."""
    by_names: dict[tuple[str, ...], list[File]] = {}
    every = _headers(where, files, rows.csv) if rows.csv.header else repeat(rows.names, len(files))
    for file, names in zip(files, every, strict=True):
        if names:
            by_names.setdefault(names, []).append(file)
    found = [
        text_rows.frame(spark, parts(where, group, rows.csv, rows.slices), _made, replace(rows, names=names))
        for names, group in (by_names or {rows.names: []}).items()
    ]
    return balanced(lambda a, b: a.unionByName(b), found)


def parts(
    where: Place,
    files: Sequence[File],
    options: CsvOptions,
    slices: lines.Slices = lines.WHOLE,
) -> Iterator[TextPart]:
    """The parts of these files, cut at line feeds; a file that has only carriage returns is one part."""
    for file in files:
        cut = not options.multi_line and (
            file.name in slices
            or file.size <= lines.PART_BYTES
            or lines.is_compressed(file)
            or _has_feeds(where, file)
        )
        yield from lines.parts(where, [file], cut, slices)


def has_slices(where: Place, file: File, options: CsvOptions) -> bool:
    """Whether slices of a file can be read: its first line, which is not blank, ends with a line feed, and so does
    every record's, or it is refused."""
    if options.multi_line or not _has_feeds(where, file):
        return False
    with reading(file.path, "csv"), where.fs.open_input_stream(file.path) as source:
        return source.read(lines.LEAST_SLICE).removeprefix(lines.BOM)[:1] not in (b"", b"\r", b"\n")


def _has_feeds(where: Place, file: File) -> bool:
    """Whether the first line ends with a line feed."""
    with reading(file.path, "csv"), where.fs.open_input_stream(file.path) as source:
        block, found = b"", None
        while found is None and (more := source.read(_BLOCK)):
            block = block[-1:] + more
            found = _ENDED.search(block)
    return found is None or b"\n" in found[0]


def _made(rows: TextRows, pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
    """Runs in a worker."""
    for piece in pieces:
        yield from batches(rows, piece.what)


_LONE_RETURN = re.compile(rb"\r(?!\n)")


class Grammar:
    """What a sound (well-formed) record looks like under the options."""

    def __init__(self, options: CsvOptions) -> None:
        self.quote, self.escape = options.quote.encode(), options.escape.encode()
        self.multi_line, self.at = options.multi_line, options.at
        quote, escape, sep = (re.escape(c.encode()) for c in (options.quote, options.escape, options.delimiter))
        ends = b"" if options.multi_line else rb"\r\n"
        if options.escape == options.quote:
            inside = b"[^%b%b]*+(?:%b%b[^%b%b]*+)*+" % (quote, ends, quote, quote, quote, ends)
        else:
            plain, after = b"[^%b%b%b]*+" % (quote, escape, ends), b"[^%b]" % ends if ends else rb"[\s\S]"
            inside = b"%b(?:%b%b%b)*+" % (plain, escape, after, plain)
        quoted, bare = b"%b%b%b" % (quote, inside, quote), rb"[^%b%b\r\n][^%b\r\n]*+" % (quote, sep, sep)
        self._field = re.compile(b"%b|%b" % (quoted, bare))
        any_field = b"(?:%b|%b|)" % (quoted, bare)
        record = b"%b(?:%b%b)*+" % (any_field, sep, any_field)
        self._record = re.compile(rb"%b(?:\r\n|\n|\r)" % record)
        self._records = re.compile(rb"(?:%b(?:\r\n|\n|\r))*+" % record)
        # pyarrow skips empty lines, so CR CR LF (a line end that Windows converted twice) is one line end
        self.feeds = re.compile(rb"(?:\r*%b(?:\r*\n|\r+\Z))*+" % record)
        self.returns = re.compile(rb"(?:%b\r(?!\n))*+" % record)

    @cached_property
    def _escaped(self) -> re.Pattern[bytes]:
        return re.compile(b"%b([%b%b])" % tuple(map(re.escape, (self.escape, self.escape, self.quote))))

    def records(self, block: bytes) -> Iterator[bytes]:
        """The records of a sound block, each with its line end."""
        return (found[0] for found in self._record.finditer(block))

    def sound(self, block: bytes) -> int:
        """Where the last complete, sound record of a block ends."""
        found = self._records.match(block)
        return found.end() if found else 0

    def doubled(self, block: bytes) -> bytes:
        """A sound block in which quotes inside quoted fields are doubled, not escaped; all else is the same."""
        if self.escape == self.quote or self.escape not in block:
            return block
        return self._field.sub(self._double, block)

    def _double(self, found: re.Match[bytes]) -> bytes:
        text = found[0]
        if not text.startswith(self.quote):
            return text
        inner = self._escaped.sub(rb"\1", text[1:-1])
        return self.quote + inner.replace(self.quote, self.quote * 2) + self.quote


def batches(rows: TextRows, part: TextPart) -> Iterator[pa.RecordBatch]:
    """A part's records: see text_rows.schema; `own.ROW` increases along the file.

    With a header the file's first record names the fields and is skipped. An unquoted field that is empty or holds
    the text of NULL is NULL. Raises BadData naming the file, and the record that cannot be read.
    """
    skip = 1 if rows.csv.header and part.start == 0 else 0
    there = ((offset, block) for offset, block in blocks(rows.csv, part) if block.strip(b"\r\n"))
    found = (_Block(rows, offset, block, 0 if number else skip) for number, (offset, block) in enumerate(there))
    yield from text_rows.batches(part, rows, "csv", found)


class _Block:
    """See text_rows.Block: the records of a block of a part. skip: how many of the first ones are no rows."""

    def __init__(self, rows: TextRows, offset: int, block: bytes, skip: int) -> None:
        self.offset, self.line_end = offset, b"\n" if b"\n" in block else b"\r"
        self._rows, self._block, self._skip = rows, block, skip
        self._grammar = Grammar(rows.csv)
        self.faults: dict[int, str] = {}
        self._unlike: dict[int, str] = {}
        texts = self._texts().slice(skip)
        self._texts_by_name = dict(zip(rows.names, texts.columns, strict=True))
        self.columns = self._values(texts.num_rows)
        self.places = pa.array(range(offset, offset + texts.num_rows), pa.int64())

    @property
    def hint(self) -> Hint | str:
        """A record of other fields than the file's has a way on of its own."""
        own = self._unlike.get(min(self.faults, default=-1))
        return self._rows.hint if own is None else own + self._rows.csv.then

    def _texts(self) -> pa.Table:
        """The fields of all records; of one that has more or fewer, or is not UTF-8, NULLs, and a fault."""
        count = len(self._rows.names)
        names = [f"c{i}" for i in range(count)]
        try:
            return _parsed(self._grammar.doubled(self._block), self._rows.csv, names)
        except pa.ArrowInvalid:
            nothing = self._rows.csv.delimiter.encode() * (count - 1) or self._grammar.quote * 2
        records = [record for _, record in self.records]
        for index, record in enumerate(records):
            if (unlike := self._fault(record, count)) is not None:
                fault, self._unlike[index - self._skip] = unlike
                self.faults[index - self._skip], records[index] = fault, nothing
        return _parsed(self._grammar.doubled(b"\n".join([*records, b""])), self._rows.csv, names)

    def _fault(self, record: bytes, count: int) -> tuple[str, str] | None:
        """What is wrong with a record, and what to do about it."""
        try:
            text = self._grammar.doubled(record).decode()
        except UnicodeDecodeError:
            return NO_TEXT, _AS_UTF8
        as_doubled = {"escape": self._rows.csv.quote, "multi_line": True}
        found = len(fields(text, self._rows.csv.model_copy(update=as_doubled)))
        if found == count:
            return None
        shown = "" if self._rows.quarantine else f": {_text(record)}"  # which keeps the record
        return f"expected {count} fields, found {found}{shown}", _QUOTE_IT

    def _values(self, count: int) -> dict[str, pa.Array]:
        values: dict[str, pa.Array] = {}
        for name, column in self._rows.columns.items():
            if name not in self._texts_by_name:
                values[name] = pa.nulls(count, arrow_type(column["type"]))
                continue
            text = self._texts_by_name[name].combine_chunks()
            values[name], faults = texts.column(text, column["type"])
            for index, fault in faults.items():
                self.faults.setdefault(index, f"column '{name}': {fault}")
        return values

    @cached_property
    def records(self) -> list[tuple[int, bytes]]:
        """The records of the block, each with the number of lines before it in the block; blank lines are none."""
        found, line = [], 0
        for record in self._grammar.records(self._block):
            if record.strip(b"\r\n"):
                found.append((line, record.rstrip(b"\r\n")))
            line += record.count(self.line_end)
        return found

    def record(self, index: int) -> tuple[int, bytes]:
        return self.records[index + self._skip]

    def key(self, index: int) -> Mapping[str, object]:
        there = (name for name in self._rows.key if name in self._texts_by_name)
        told = {name: self._texts_by_name[name][index].as_py() for name in there}
        return {name: text for name, text in told.items() if text is not None}


def _parsed(block: bytes, options: CsvOptions, names: Sequence[str]) -> pa.Table:
    """Sound records as columns of text. Raises ArrowInvalid if one has more or fewer fields or is not UTF-8."""
    return pacsv.read_csv(
        pa.BufferReader(block),
        pacsv.ReadOptions(use_threads=False, block_size=len(block) + 1, column_names=list(names)),
        pacsv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote, newlines_in_values=True),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=["", options.null_value],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


def blocks(options: CsvOptions, part: TextPart) -> Iterator[tuple[int, bytes]]:
    """The part's complete records in blocks, each with the byte at which it begins."""
    grammar = Grammar(options)
    ends: Sequence[re.Pattern[bytes]] = (grammar.feeds, grammar.returns)
    with opened(part) as (source, at):
        held = b""
        for more, last in chunks(source, part, at):
            block = held + more
            if last and block and not block.endswith((b"\n", b"\r")):
                fed = block + b"\n"
                block = fed if _ends_left(grammar, ends, fed) else block + b"\r"
            cut = _cut(grammar, part, at, block, last)
            left = _ends_left(grammar, ends, block[:cut])
            if not left:
                told = ends[0].match(block)
                alone = told.end() if told else 0
                raise BadData(
                    f"{part.path}: a carriage return that is not part of a line end, in "
                    f"{_place(part, at + alone)}: {_text(block[alone:])}",
                    in_config(f"quote the field that contains it and set {options.at}.multi_line = true; or use ")
                    + "one kind of line end in the whole file"
                    + options.then,
                )
            ends = left
            if not cut and len(block) > lines.LONGEST:
                raise lines.too_long(part.path)
            if cut:
                yield at, block[:cut]
            held, at = block[cut:], at + cut


def _ends_left(grammar: Grammar, ends: Sequence[re.Pattern[bytes]], block: bytes) -> Sequence[re.Pattern[bytes]]:
    """The line ends out of `ends` that match every line of a sound block.

    pyarrow takes any lone carriage return for a line end, even if lines end with line feeds.
    """
    if not block:
        return ends
    if _LONE_RETURN.search(block) is None:
        return [end for end in ends if end is grammar.feeds]
    return [end for end in ends if (found := end.match(block)) is not None and found.end() == len(block)]


def _cut(grammar: Grammar, part: TextPart, at: int, block: bytes, last: bool) -> int:
    """How much of the block is read now; the rest waits for the next one. Raises BadData for an unsound record."""
    ended = len(block) if last else block.rfind(b"\n") + 1 or block.rfind(b"\r", 0, -1) + 1
    if grammar.quote not in block:
        return ended
    whole = block if last else block.removesuffix(b"\r")  # a line feed may follow in the next block
    sound = grammar.sound(whole if grammar.multi_line else block[:ended])
    if sound < ended and (last or not grammar.multi_line or len(block) > lines.LONGEST):
        ends = "in the file" if grammar.multi_line else "on its line"
        too = (
            "" if grammar.multi_line else f", and with {grammar.at}.multi_line = true if fields contain line ends"
        )
        raise BadData(
            f"{part.path}: a quoted field is not closed {ends}, or has text after its closing quote, in "
            f"{_place(part, at + sound)}: {_text(block[sound:])}",
            START_OVER + f", with {grammar.at}.quote and {grammar.at}.escape set to what the file uses{too}",
        )
    return sound


def _place(part: TextPart, at: int) -> str:
    """Where the record is that begins at a byte of a file."""
    feeds, returns = lines.ends_before(part, at)
    return f"the record at line {(feeds or returns) + 1} (byte {at:,})"


def _text(block: bytes) -> str:
    """The beginning of a record, for display: at most its first line."""
    return block[:SHOWN].decode("utf-8", "replace").partition("\n")[0].partition("\r")[0]
