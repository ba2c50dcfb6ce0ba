"""The years that records of Avro and Protobuf can have: 1 to 9999, as most of their readers have no others."""

import pyarrow as pa

from backfill_cli.contracts.domain import Domain
from backfill_cli.decode.held import refused
from backfill_cli.errors import CORRECT_VALUE, BadData
from backfill_cli.model.schema import Columns

DAY = 86_400 * 10**6
FIRST, END = -719_162 * DAY, 2_932_897 * DAY
"""Microseconds since 1970."""


def domain_of(title: str) -> Domain:
    """What a record holds in the encoding of this title."""
    ends = (FIRST, END - 1)
    first, last = ({"date": at // DAY, "timestamp": at, "timestamp_ntz": at} for at in ends)
    return Domain(f"a record in {title}", first=first, last=last, endless=False, deep=True)


def refuse_far(columns: Columns, batch: pa.RecordBatch, title: str) -> None:
    """Raises BadData for a date or a time of another year, at any depth.

    Where rows are read as text and no transform follows, it has been refused where it was read.
    """
    told = refused(columns, {name: batch.column(name) for name in columns}, domain_of(title))
    if told:
        raise BadData(told[min(told)], CORRECT_VALUE)
