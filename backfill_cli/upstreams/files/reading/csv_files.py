"""Reads CSV files: Python workers split them into Arrow columns of text, Spark converts these exactly.

pyarrow silently accepts text after a closing quote, and a quote that is never closed; therefore a grammar checks
blocks with quotes before pyarrow parses them.
"""

import csv
import difflib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING

from backfill_cli.contracts import Piece, own
from backfill_cli.errors import START_OVER, BadData, Fatal
from backfill_cli.formats import exact, frames
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import RENAME_HINT, SAME_PACKAGE, reading
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import lines
from backfill_cli.upstreams.files.reading.lines import TextPart, chunks, opened

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


_LAST_LINES = 1_000
"""Lines searched backwards for the start of a file's last record."""

_THREADS = 16

_BLOCK = 1 << 16
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
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise BadData(
            f"{file.path}: duplicate column '{twice[0]}' in the header", "give each column a different name"
        )
    return names


def last_record(where: Place, file: File, options: CsvOptions, count: int) -> list[str] | None:
    """The fields of the last record, NULL as the empty text; None if the file is empty or the record is not found.

    Raises BadData if the last line does not have `count` fields.
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
            "files without a header must have the snapshot's columns in the same order; if they have a header, "
            f"set {options.at}.header = true; if fields contain line ends, set {options.at}.multi_line = true",
        )
    return values if values is not None and len(values) == count else None


def refuse_other_columns(
    where: Place, files: Sequence[File], options: CsvOptions, columns: Columns, ignored: Sequence[str]
) -> None:
    """Raises BadData for a declared column that is in no header, and for a header column that is not declared."""
    shown: set[str] = set()
    with ThreadPoolExecutor(_THREADS) as pool:
        for file, names in zip(files, pool.map(lambda f: header(where, f, options), files), strict=True):
            shown.update(names)
            for name in names:
                if name not in columns and name not in ignored:
                    near = _nearest(name, [c for c in columns if c not in names])
                    hint = f"write it there instead of '{near}'" if near else "declare it there"
                    raise BadData(
                        f"{file.path}: column '{name}' is not in upstream.snapshot.schema",
                        f'{hint}, or omit it on purpose: upstream.snapshot.ignore = ["{name}"]',
                    )
    absent = [name for name in columns if name not in shown]
    if shown and absent:
        raise BadData(
            f"{where.shown}: column '{absent[0]}' of upstream.snapshot.schema is in no file's header",
            f"write a name of the headers there, or remove it: the headers have {', '.join(sorted(shown))}",
        )


def _nearest(name: str, others: Sequence[str]) -> str | None:
    low = {other.strip().lower(): other for other in others}
    found = difflib.get_close_matches(name.strip().lower(), list(low), 1, 0.6)
    return low[found[0]] if found else None


def frame(
    spark: "SparkSession", where: Place, files: Sequence[File], options: CsvOptions, columns: Columns, hint: str
) -> "DataFrame":
    """`own.FILE, own.AT, columns…`. Without a header the files have the columns in the given order.

    With one, a column that a file lacks is NULL in its rows. hint: what to do about a value that does not fit.
    Raises Fatal if workers do not have this package.
    """
    if not arrow_tasks.workers_know_us(spark):
        raise Fatal("CSV files are read by backfill-cli in Spark's executors, which lack it", SAME_PACKAGE)
    if not options.header:
        return _of_order(spark, where, files, options, columns, list(columns), hint)
    by_header: dict[tuple[str, ...], list[File]] = {}
    for file in files:
        names = header(where, file, options)
        if names:
            by_header.setdefault(tuple(names), []).append(file)
    parts = [_of_order(spark, where, group, options, columns, names, hint) for names, group in by_header.items()]
    if not parts:
        return _of_order(spark, where, [], options, columns, list(columns), hint)
    return balanced(lambda a, b: a.unionByName(b), parts)


def _of_order(
    spark: "SparkSession",
    where: Place,
    files: Sequence[File],
    options: CsvOptions,
    columns: Columns,
    order: Sequence[str],
    hint: str,
) -> "DataFrame":
    from pyspark.sql import functions as F

    rows = _texts(spark, where, files, options, len(order), hint)
    values = []
    row = exact.row_of(F.col(own.FILE), F.col(own.ROW))
    for column, described in columns.items():
        kind, metadata = described["type"], described["metadata"]
        if column not in order:
            values.append(F.lit(None).cast(frames.struct_type({column: described})[column].dataType).alias(column))
            continue
        # numbered, because names can contain anything and can differ in case only
        text, named = F.col(f"c{list(order).index(column)}"), exact.Named(row, column, hint)
        values.append(exact.of_text(text, kind, named).alias(column, metadata=metadata))
    at = F.struct(F.col(own.FILE).alias("file"), F.col(own.ROW).alias("row"))
    return rows.select(own.FILE, at.alias(own.AT), *values)


def _texts(
    spark: "SparkSession", where: Place, files: Sequence[File], options: CsvOptions, count: int, hint: str
) -> "DataFrame":
    """`own.FILE, own.ROW, c0, c1, …` of these files, as batches yields them."""
    texts: Columns = {own.FILE: field(own.FILE, "string"), own.ROW: field(own.ROW, "long")}
    texts |= {f"c{i}": field(f"c{i}", "string") for i in range(count)}
    tasks = lines.packed(parts(where, files, options), arrow_tasks.cores(spark))
    if not tasks:
        return spark.createDataFrame([], frames.struct_type(texts))
    return arrow_tasks.frame(spark, partial(_made, options, count, hint), tasks, frames.struct_type(texts))


def parts(where: Place, files: Sequence[File], options: CsvOptions) -> Iterator[TextPart]:
    """The parts of these files, cut at line feeds; a file that has only carriage returns is one part."""
    for file in files:
        cut = not options.multi_line and (
            file.size <= lines.PART_BYTES or lines.is_compressed(file) or _has_feeds(where, file)
        )
        yield from lines.parts(where, [file], cut)


def _has_feeds(where: Place, file: File) -> bool:
    """Whether the first line ends with a line feed."""
    with reading(file.path, "csv"), where.fs.open_input_stream(file.path) as source:
        block, found = b"", None
        while found is None and (more := source.read(_BLOCK)):
            block = block[-1:] + more
            found = _ENDED.search(block)
    return found is None or b"\n" in found[0]


def _made(options: CsvOptions, columns: int, hint: str, pieces: Sequence[Piece]) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    for piece in pieces:
        yield from batches(options, columns, piece.what, hint)


_SHOWN = 200
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
        self._records = re.compile(rb"(?:%b(?:\r\n|\n|\r))*+" % record)
        # pyarrow skips empty lines, so CR CR LF (a line end that Windows converted twice) is one line end
        self.feeds = re.compile(rb"(?:\r*%b(?:\r*\n|\r+\Z))*+" % record)
        self.returns = re.compile(rb"(?:%b\r(?!\n))*+" % record)

    @cached_property
    def _escaped(self) -> "re.Pattern[bytes]":
        return re.compile(b"%b([%b%b])" % tuple(map(re.escape, (self.escape, self.escape, self.quote))))

    def sound(self, block: bytes) -> int:
        """Where the last complete, sound record of a block ends."""
        found = self._records.match(block)
        return found.end() if found else 0

    def doubled(self, block: bytes) -> bytes:
        """A sound block in which quotes inside quoted fields are doubled, not escaped; all else is the same."""
        if self.escape == self.quote or self.escape not in block:
            return block
        return self._field.sub(self._double, block)

    def _double(self, found: "re.Match[bytes]") -> bytes:
        text = found[0]
        if not text.startswith(self.quote):
            return text
        inner = self._escaped.sub(rb"\1", text[1:-1])
        return self.quote + inner.replace(self.quote, self.quote * 2) + self.quote


def batches(
    options: CsvOptions, columns: int, part: TextPart, hint: str = RENAME_HINT
) -> "Iterator[pa.RecordBatch]":
    """A part's records: `own.FILE STRING, own.ROW BIGINT` (increasing along the file), then `c0, c1, …` STRING.

    columns: how many fields each record has. With a header the file's first record names them and is skipped.
    An unquoted field that is empty or holds the text of NULL is NULL. Raises BadData naming the file and the
    malformed record. hint: of a damaged file.
    """
    import pyarrow as pa

    skip = 1 if options.header and part.start == 0 else 0
    names = [f"c{i}" for i in range(columns)]
    with reading(part.path, "csv", hint):
        for offset, block in blocks(options, part):
            if not block.strip(b"\r\n"):
                continue
            table = parsed(block, options, names, part.path).slice(skip)
            skip = 0
            rows = pa.array(range(offset, offset + table.num_rows), pa.int64())
            files = pa.repeat(pa.scalar(part.name, pa.string()), table.num_rows)
            whole = pa.table([files, rows, *table.columns], names=[own.FILE, own.ROW, *names])
            yield from whole.combine_chunks().to_batches()


def parsed(block: bytes, options: CsvOptions, names: Sequence[str], path: str) -> "pa.Table":
    """Sound records as columns of text. Raises BadData for one that has more or fewer fields or is not UTF-8."""
    import pyarrow as pa
    import pyarrow.csv as pacsv

    try:
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
    except pa.ArrowInvalid as exc:
        counted = re.search(r"Expected (\d+) columns, got (\d+): (.*)", str(exc), re.DOTALL)
        if counted:
            what = f"expected {counted[1]} fields, found {counted[2]}: {counted[3][:_SHOWN]}"
            raise BadData(
                f"{path}: {what}",
                f"correct the line; fields that contain the delimiter must be quoted{options.then}",
            ) from exc
        raise BadData(f"{path}: not UTF-8 text: {exc}", f"write the file as UTF-8{options.then}") from exc


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
                    f"{part.path}: a carriage return that is not part of a line end, in the record at byte "
                    f"{at + alone}: {_text(block[alone:])}",
                    f"quote the field that contains it and set {options.at}.multi_line = true; or use one kind of "
                    f"line end in the whole file{options.then}",
                )
            ends = left
            if not cut and len(block) > lines.LONGEST:
                raise lines.too_long(part.path)
            if cut:
                yield at, grammar.doubled(block[:cut])
            held, at = block[cut:], at + cut


def _ends_left(
    grammar: Grammar, ends: "Sequence[re.Pattern[bytes]]", block: bytes
) -> "Sequence[re.Pattern[bytes]]":
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
            f"{part.path}: a quoted field is not closed {ends}, or has text after its closing quote, in the "
            f"record at byte {at + sound}: {_text(block[sound:])}",
            f"{START_OVER}, with {grammar.at}.quote and {grammar.at}.escape set to what the file uses{too}",
        )
    return sound


def _text(block: bytes) -> str:
    """The beginning of a record, for display."""
    return " ".join(block[:_SHOWN].decode("utf-8", "replace").splitlines())
