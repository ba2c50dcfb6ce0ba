"""Converts JSON lines to Arrow columns in Spark's Python workers: Arrow parses blocks whose lines are plain.

Lines of any other block are passed on unchanged, for Spark to check them and report what is wrong. Planning
looks at the first lines: a declared column that none of them has is probably misspelt.
"""

import difflib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from backfill_cli.contracts import Piece, own
from backfill_cli.errors import BadData, Hint, in_config
from backfill_cli.formats import fast_json
from backfill_cli.formats.fast_json import FastPath
from backfill_cli.formats.listing import File, Place
from backfill_cli.model.schema import Columns
from backfill_cli.spark import arrow_tasks
from backfill_cli.spark.failures import reading
from backfill_cli.upstreams.files.reading import lines
from backfill_cli.upstreams.files.reading.lines import TextPart, chunks, opened

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


WHITE = b" \t\r"


def frame(
    spark: "SparkSession", where: Place, files: Sequence[File], fast: FastPath | None, hint: Hint | str
) -> "DataFrame":
    """The lines that are not blank: `own.FILE, own.AT, own.LINE BINARY`, and the columns of `fast`.

    `own.LINE` is NULL if those columns hold its values. Executors need this package. hint: of a damaged file.
    """
    from pyspark.sql import functions as F

    schema = f"{own.FILE} STRING, {own.ROW} BIGINT, {own.LINE} BINARY" + (
        f", {fast.spark_fields()}" if fast is not None else ""
    )
    tasks = lines.packed(lines.parts(where, files, cut=True), arrow_tasks.cores(spark))
    made = (
        arrow_tasks.frame(spark, partial(_made, fast, hint), tasks, schema)
        if tasks
        else spark.createDataFrame([], schema)
    )
    at = F.struct(F.col(own.FILE).alias("file"), F.col(own.ROW).alias("row"))
    beside = [] if fast is None else [own.FAST, *(own.numbered(own.FAST, i) for i in range(len(fast.kinds)))]
    return made.select(own.FILE, at.alias(own.AT), own.LINE, *beside)


def _made(fast: FastPath | None, hint: Hint | str, pieces: Sequence[Piece]) -> "Iterator[pa.RecordBatch]":
    """Runs in a worker."""
    for piece in pieces:
        with reading(piece.what.path, "json", hint):
            yield from batches(fast, piece.what)


def batches(fast: FastPath | None, part: TextPart) -> "Iterator[pa.RecordBatch]":
    """A part's `own.FILE STRING, own.ROW BIGINT` (rising along the file), `own.LINE BINARY`, columns of `fast`."""
    import pyarrow as pa

    for offset, block in blocks(part):
        values = [line for line in (one.strip(WHITE) for one in block.split(b"\n")) if line]
        if not values:
            continue
        told = {
            own.FILE: pa.repeat(pa.scalar(part.name, pa.string()), len(values)),
            own.ROW: pa.array(range(offset, offset + len(values)), pa.int64()),
            own.LINE: pa.array(values, pa.binary()),
        }
        if fast is not None:
            told |= fast_json.beside(values, fast)
            if told[own.FAST][0].as_py():
                told[own.LINE] = pa.nulls(len(values), pa.binary())
        yield pa.RecordBatch.from_pydict(told)


def blocks(part: TextPart) -> Iterator[tuple[int, bytes]]:
    """Complete lines in blocks, each with the byte at which it begins."""
    with opened(part) as (source, at):
        held = b""
        for more, last in chunks(source, part, at):
            block = held + more
            cut = len(block) if last else block.rfind(b"\n") + 1
            if not cut and len(block) > lines.LONGEST:
                raise lines.too_long(part.path)
            if cut:
                yield at, block[:cut]
            held, at = block[cut:], at + cut


_FILES = 8
_LINES = 1_000
"""The lines per file and the files that are read: as a rule the first line shows all columns."""


def refuse_unseen(where: Place, files: Sequence[File], columns: Columns, sparse: Sequence[str]) -> None:
    """Raises BadData for a declared column that is in none of the lines read, unless it is `sparse`.

    Lines can omit NULLs, as Spark's do, and then do not show whether a column is misspelt or always NULL.
    """
    missing = {name: None for name in columns if name not in sparse}
    shown: dict[str, None] = {}
    looked_at = 0
    for file in files[:_FILES]:
        for line in islice(lines.forward(where, file, "json"), _LINES):
            looked_at += 1
            for name in lines.parsed(file, line):
                missing.pop(name, None)
                shown.setdefault(name)
            if not missing:
                return
    if looked_at and missing:
        name = next(iter(missing))
        others = [other for other in shown if other not in columns]
        near = difflib.get_close_matches(name.lower(), {o.lower() for o in others}, 1, 0.6)
        meant = [other for other in others if other.lower() in near]
        hint = f"did you mean '{meant[0]}'? " if meant else ""
        raise BadData(
            f"{where.shown}: column '{name}' of upstream.snapshot.schema is in none of the {looked_at} lines read",
            in_config(f'{hint}If lines omit it when it is NULL: upstream.snapshot.sparse = ["{name}"]'),
        )
