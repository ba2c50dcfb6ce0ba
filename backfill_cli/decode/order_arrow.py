"""Which windows of a change log hold nothing that `order.refusing` could refuse: by columns, where they were read.

Whatever is in doubt is left to it: this only says where the changes of two rows cannot have met at a key.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from backfill_cli.contracts import own
from backfill_cli.formats.compute import pc


def doubtful(
    rows: pa.Table, key: Sequence[str], images: Sequence[str], with_block: bool, several: bool, begun: bool
) -> bool:
    """Whether `refusing` has to look at all of the window's changes.

    rows: the changes of whole partitions, or of their ends, in the order of the log, with `own.TRACE`. begun:
    whether others of a partition, which are not here, come before them; the last ones may be of the transaction
    that the rows begin with. several: whether tables are read as one, whose transactions can alternate, too.
    with_block: as for `refusing`.
    """
    if all(part.field("sure").null_count == len(part) for part in rows[own.TRACE].chunks):
        return False
    trace = _whole(rows[own.TRACE])
    tx, tables, number, sure = (pc.struct_field(trace, name) for name in ("tx", "table", "number", "sure"))
    removes = pc.and_(pc.is_valid(sure), pc.and_(pc.is_valid(tx), pc.is_valid(number)))
    gone = _gone(trace, images, with_block)
    if not several and len(pc.unique(tables)) == 1:  # then a removal proves something by an old value only
        removes = pc.and_(removes, reduce(pc.or_, map(pc.is_valid, gone), pa.repeat(pa.scalar(False), len(rows))))
    if begun:
        cut = removes if several else pc.and_(removes, _first_transactions(rows, tx))
        if pc.any(cut).as_py():
            return True
    at = pc.indices_nonzero(pc.is_in(tx, pc.unique(tx.filter(removes))))
    now, before = _neighbours(rows.select(key).take(at))
    now, before = at.take(now), at.take(before)
    meet = reduce(
        pc.and_,
        (
            removes.take(now),
            pc.equal(_whole(rows[own.OP]).take(before), "U"),
            pc.equal(tx.take(now), tx.take(before)),
        ),
    )
    now, before = now.filter(meet), before.filter(meet)
    other = pc.not_equal(tables.take(now), tables.take(before))
    for name, old in zip(images, gone, strict=True):
        other = pc.or_(other, _differ(old.take(now), _whole(rows[name]).take(before)))
    return bool(pc.any(other).as_py())


def _gone(trace: pa.StructArray, images: Sequence[str], with_block: bool) -> list[pa.Array]:
    """The old values of each column that are, or can be, those of the row that a change removes."""
    found = [pc.struct_field(trace, ["gone", f"c{i}"]) for i in range(len(images))]
    if not with_block:
        return found
    sure = pc.struct_field(trace, "sure")
    return [pc.if_else(pc.list_element(sure, i), one, None) for i, one in enumerate(found)]


def _first_transactions(rows: pa.Table, tx: pa.Array) -> pa.Array:
    """Whether a change is of the transaction that the rows of its partition begin with, but for those of none."""
    partition = _whole(rows[own.SEQ]).field(0)
    numbers = pa.table({"partition": partition, "at": pa.array(range(len(rows)), pa.int64())})
    firsts = numbers.filter(pc.is_valid(tx)).group_by("partition").aggregate([("at", "min")])["at_min"]
    return pc.is_in(tx, tx.take(_whole(firsts)).drop_null())


def _neighbours(keys: pa.Table) -> tuple[pa.Array, pa.Array]:
    """(the places of rows, those of the row before each one that has the same key)"""
    names = [str(at) for at in range(keys.num_columns)]
    columns = [_whole(column) for column in keys.columns]
    number = pa.array(range(keys.num_rows), pa.int64())
    order = pc.sort_indices(
        pa.table([*columns, number], [*names, "number"]), [(name, "ascending") for name in (*names, "number")]
    )
    ordered = [column.take(order) for column in columns]
    same: Any = pa.repeat(pa.scalar(True), max(len(order) - 1, 0))
    for column in ordered:
        same = pc.and_(same, _alike(column.slice(1), column.slice(0, max(len(order) - 1, 0))))
    return order.slice(1).filter(same), order.slice(0, max(len(order) - 1, 0)).filter(same)


def _alike(one: pa.Array, other: pa.Array) -> pa.Array:
    both_nan = pc.and_(pc.is_nan(one), pc.is_nan(other)) if pa.types.is_floating(one.type) else None
    alike = pc.fill_null(pc.equal(one, other), False)
    return alike if both_nan is None else pc.or_(alike, pc.fill_null(both_nan, False))


def _differ(one: pa.Array, other: pa.Array) -> pa.Array:
    """Whether both are there, and are not the same value."""
    return pc.and_not(pc.and_(pc.is_valid(one), pc.is_valid(other)), _alike(one, other))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
