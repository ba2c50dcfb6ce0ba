"""Reads CSV files: Python workers split them into texts (csv_text.py), Spark converts these exactly."""

import csv
import difflib
import io
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from backfill_cli.contracts import Piece, own
from backfill_cli.errors import BadData, Fatal
from backfill_cli.formats import exact, frames
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.balanced import balanced
from backfill_cli.model.schema import Columns, field
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import SAME_PACKAGE, reading
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import csv_text, lines, text_parts
from backfill_cli.upstreams.files.reading.text_parts import TextPart

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
    """`own.FILE, own.ROW, c0, c1, …` of these files, as csv_text.batches yields them."""
    texts: Columns = {own.FILE: field(own.FILE, "string"), own.ROW: field(own.ROW, "long")}
    texts |= {f"c{i}": field(f"c{i}", "string") for i in range(count)}
    tasks = text_parts.packed(parts(where, files, options), arrow_tasks.cores(spark))
    if not tasks:
        return spark.createDataFrame([], frames.struct_type(texts))
    return arrow_tasks.frame(spark, partial(_made, options, count, hint), tasks, frames.struct_type(texts))


def parts(where: Place, files: Sequence[File], options: CsvOptions) -> Iterator[TextPart]:
    """The parts of these files, cut at line feeds; a file that has only carriage returns is one part."""
    for file in files:
        cut = not options.multi_line and (
            file.size <= text_parts.PART_BYTES or lines.is_compressed(file) or _has_feeds(where, file)
        )
        yield from text_parts.parts(where, [file], cut)


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
        yield from csv_text.batches(options, columns, piece.what, hint)
