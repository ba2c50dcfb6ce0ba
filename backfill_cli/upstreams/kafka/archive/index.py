"""Which offsets of which partition each archive file holds: read from just two of its columns.

Nothing here knows the log. Offsets are half-open ranges, `high` the next one after the last.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import BadData, in_config
from backfill_cli.formats.listing import File, Place
from backfill_cli.spark.failures import reading
from backfill_cli.upstreams.kafka.options import ArchiveOptions

if TYPE_CHECKING:
    import pyarrow as pa

_NO_ROW = re.compile(rb"(?:^|[\n}])\s*null\s*(?:$|[\n{])")

Span = tuple[int, int]
"""(first offset, next offset after the last)"""

MOST_GAPS = 100_000
"""A file with more gaps than this is from a topic whose gaps are no loss: that must be declared."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One partition in one file. rows: records there, `distinct` offsets. gaps: what is missing between them."""

    file: File
    partition: int
    low: int
    high: int
    rows: int
    distinct: int
    gaps: tuple[Span, ...] = ()


def pieces(where: Place, file: File, options: ArchiveOptions, gaps_count: bool) -> list[Piece]:
    """What one file holds, by partition. gaps_count: whether a missing offset is a gap.

    Raises BadData naming the file for columns that are missing, not whole numbers, or NULL in some row.
    """
    import pyarrow.compute as pc

    table = _two_columns(where, file, options)
    found = []
    grouped = table.group_by("p").aggregate([("o", "min"), ("o", "max"), ("o", "count"), ("o", "count_distinct")])
    for one in grouped.to_pylist():
        partition, low, high, distinct = one["p"], one["o_min"], one["o_max"] + 1, one["o_count_distinct"]
        gaps: tuple[Span, ...] = ()
        if gaps_count and distinct < high - low:
            gaps = _gaps(file, partition, table.filter(pc.equal(table["p"], partition))["o"])
        found.append(Piece(file, partition, low, high, one["o_count"], distinct, gaps))
    return sorted(found, key=lambda piece: piece.partition)


def missing(held: Sequence[Piece]) -> tuple[Span, ...]:
    """The offsets between the first and the last of one partition's pieces that none of them holds."""
    runs = sorted(run for piece in held for run in _runs(piece))
    found = []
    reached = runs[0][0] if runs else 0
    for low, high in runs:
        if low > reached:
            found.append((reached, low))
        reached = max(reached, high)
    return tuple(found)


def twice(held: Sequence[Piece]) -> bool:
    """Whether an offset may be in these pieces of one partition more than once."""
    reached = -1
    for piece in sorted(held, key=lambda piece: piece.low):
        if piece.low < reached or piece.distinct < piece.rows:
            return True
        reached = max(reached, piece.high)
    return False


def without(span: Span, holes: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """A span cut at the holes: (what is left of it, the parts of the holes in it). holes: in order."""
    kept, lost = [], []
    low, high = span
    for begin, end in holes:
        begin, end = max(begin, low), min(end, high)
        if begin >= end:
            continue
        if low < begin:
            kept.append((low, begin))
        lost.append((begin, end))
        low = end
    if low < high:
        kept.append((low, high))
    return kept, lost


def _runs(piece: Piece) -> list[Span]:
    return without((piece.low, piece.high), piece.gaps)[0]


def _gaps(file: File, partition: int, offsets: Any) -> tuple[Span, ...]:
    import pyarrow.compute as pc

    ordered = pc.unique(offsets)
    ordered = ordered.take(pc.sort_indices(ordered))
    jumps = pc.indices_nonzero(pc.greater(pc.pairwise_diff(ordered), 1))
    if len(jumps) > MOST_GAPS:
        raise BadData(
            f"{file.path}: partition {partition} has {len(jumps)} gaps in its offsets",
            in_config(
                "a compacted or transactional topic has them: set upstream.compacted or upstream.transactional"
            ),
        )
    ends = ordered.take(jumps).to_pylist()
    begins = ordered.take(pc.subtract(jumps, 1)).to_pylist()
    return tuple((begin + 1, end) for begin, end in zip(begins, ends, strict=True))


def _two_columns(where: Place, file: File, options: ArchiveOptions) -> "pa.Table":
    """`p` and `o`, both int64, without NULLs."""
    import pyarrow as pa

    names = [options.partition, options.offset]
    with reading(file.path, options.format):
        table = _of_parquet(where, file, names) if options.format == "parquet" else _of_json(where, file, names)
        for name in names:
            if not pa.types.is_integer(table.schema.field(name).type):
                raise BadData(
                    f"{file.path}: column '{name}' is not a whole number",
                    "write partition and offset as whole numbers",
                )
            if table[name].null_count:
                raise BadData(
                    f"{file.path}: column '{name}' is NULL in {table[name].null_count} rows",
                    "write partition and offset of every record",
                )
        return pa.table({"p": table[names[0]].cast(pa.int64()), "o": table[names[1]].cast(pa.int64())})


def _of_parquet(where: Place, file: File, names: list[str]) -> "pa.Table":
    import pyarrow.parquet as pq

    with where.fs.open_input_file(file.path) as source:
        opened = pq.ParquetFile(source)
        for name in names:
            if name not in opened.schema_arrow.names:
                raise _no_column(file, name)
        return opened.read(columns=names)


def _of_json(where: Place, file: File, names: list[str]) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.json as pj

    wanted = pa.schema([(name, pa.int64()) for name in names])
    parse = pj.ParseOptions(explicit_schema=wanted, unexpected_field_behavior="ignore")
    with where.fs.open_input_stream(file.path, compression="detect") as stream:
        data = stream.read()
    if not data.strip():
        return wanted.empty_table()
    if _NO_ROW.search(data):  # Arrow's parser crashes on it
        raise BadData(f"{file.path}: a line is null, but every line must be a record", "remove such lines")
    read = pj.ReadOptions(block_size=len(data) + 1)  # a line may have any length
    return pj.read_json(pa.BufferReader(data), read, parse)


def _no_column(file: File, name: str) -> BadData:
    return BadData(
        f"{file.path}: no column '{name}' with a record's partition or offset",
        in_config("name the columns: upstream.archive.partition and upstream.archive.offset"),
    )
