"""The years that records of Avro and Protobuf can have: 1 to 9999, as most of their readers have no others."""

from collections.abc import Iterator

import pyarrow as pa

from backfill_cli.contracts.domain import Domain
from backfill_cli.errors import CORRECT_VALUE, BadData
from backfill_cli.formats.compute import pc

DAY = 86_400 * 10**6
FIRST, END = -719_162 * DAY, 2_932_897 * DAY
"""Microseconds since 1970."""


def domain_of(title: str) -> Domain:
    """What a record holds in the encoding of this title."""
    ends = (FIRST, END - 1)
    first, last = ({"date": at // DAY, "timestamp": at, "timestamp_ntz": at} for at in ends)
    return Domain(f"a record in {title}", first=first, last=last, endless=False, deep=True)


def refuse_far(batch: pa.RecordBatch, encoding: str) -> None:
    """Raises BadData for a column with a date or a time of another year, at any depth.

    Where rows are read as text and no transform follows, `domain_of` has refused it where it was read.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if any(map(_is_far, _times(column))):
            raise BadData(
                f"column {name!r}: a time that is not in the years 1 to 9999 cannot be written in {encoding}",
                CORRECT_VALUE,
            )


def _times(column: pa.Array) -> Iterator[pa.Array]:
    """The dates and times in a column."""
    of, kind = pa.types, column.type
    if of.is_date(kind) or of.is_timestamp(kind):
        yield column
    elif of.is_struct(kind):
        for one in column.flatten():
            yield from _times(one)
    elif of.is_map(kind):
        first, end = column.offsets[0].as_py(), column.offsets[len(column)].as_py()
        yield from _times(column.items.slice(first, end - first))
    elif of.is_nested(kind):
        yield from _times(column.flatten())


def _is_far(times: pa.Array) -> bool:
    size = 1
    if pa.types.is_date(times.type):
        size, times = DAY, times.cast(pa.int32())
    else:
        times = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    ends = pc.min_max(times)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    return low is not None and (low * size < FIRST or high * size >= END)
