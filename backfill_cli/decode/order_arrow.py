"""Which windows of a change log hold nothing that `order.refusing` could refuse: by columns, where they were read.

Whatever is in doubt is left to it: this only says where the changes of two rows cannot have met at a key.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa

from backfill_cli.contracts import own
from backfill_cli.contracts.decoder import Edges
from backfill_cli.formats.compute import pc


def edges(
    rows: pa.Table, key: Sequence[str], images: Sequence[str], with_block: bool, several: bool
) -> Edges | None:
    """None if `refusing` has to look at all of the window's changes.

    rows: all changes of ranges of partitions in the order of the log, with `own.TRACE`. A source writes its
    transactions one after the other. several: whether tables are read as one, whose sources can be several.
    with_block: as for `refusing`.
    """
    kind = rows.schema.field(own.TRACE).type
    trace = dict(zip([one.name for one in kind], rows[own.TRACE].flatten(), strict=True))
    tx, sure = _whole(trace["tx"]), _whole(trace["sure"])
    placed = pc.and_(pc.is_valid(tx), _whole(pc.is_valid(trace["number"])))
    first, last = _ends(rows, tx, placed)
    removes = pc.and_(pc.is_valid(sure), placed)
    if not pc.any(removes).as_py():
        return Edges({}, last)
    tables, gone = _whole(trace["table"]), _gone(trace, images, with_block)
    if not several and len(pc.unique(tables)) == 1:  # then a removal proves something by an old value only
        removes = pc.and_(removes, reduce(pc.or_, map(pc.is_valid, gone), pa.repeat(pa.scalar(False), len(rows))))
    if _met(rows, key, images, removes, (tx, tables, _whole(trace["has"]), gone)):
        return None
    removing = pc.unique(tx.filter(removes)).to_pylist()
    if several:
        return Edges(dict.fromkeys(first) if removing else {}, last)
    return Edges({partition: one for partition, one in first.items() if one in removing}, last)


def _met(
    rows: pa.Table,
    key: Sequence[str],
    images: Sequence[str],
    removes: pa.Array,
    told: tuple[pa.Array, pa.Array, pa.Array, Sequence[pa.Array]],
) -> bool:
    """Whether one of these changes removes a row of its transaction that differs from the one put there before.

    told: of each change its transaction, its table, which columns its schema has, and the old values. No row of
    these has a value that was not sent.
    """
    tx, tables, has, gone = told
    those = pc.indices_nonzero(pc.is_in(tx, pc.unique(tx.filter(removes))))
    now, before = _neighbours(rows.select(key).take(those))
    now, before = those.take(now), those.take(before)
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
    told_null = has.take(before)
    for at, (name, old) in enumerate(zip(images, gone, strict=True)):
        removed, put = old.take(now), _whole(rows[name]).take(before)
        other = pc.or_(other, _differ(removed, put))
        is_null = pc.fill_null(pc.equal(pc.utf8_slice_codeunits(told_null, at, at + 1), "1"), False)
        other = pc.or_(other, pc.and_(pc.and_(is_null, pc.is_null(put)), pc.is_valid(removed)))
    return bool(pc.any(other).as_py())


def _gone(trace: Mapping[str, pa.ChunkedArray], images: Sequence[str], with_block: bool) -> list[pa.Array]:
    """The old values of each column that are, or can be, those of the row that a change removes."""
    found = [_whole(one) for one in trace["gone"].flatten()] if images else []
    if not with_block:
        return found
    sure = _whole(trace["sure"])
    return [pc.if_else(pc.list_element(sure, i), one, None) for i, one in enumerate(found)]


def _ends(rows: pa.Table, tx: pa.Array, placed: pa.Array) -> tuple[dict[int, str], dict[int, str]]:
    """The first and the last transaction of each partition."""
    partition = _whole(rows[own.SEQ]).field(0)
    numbered = pa.table({"partition": partition, "at": pc.cumulative_sum(pa.repeat(1, len(rows)), start=-1)})
    found = numbered.filter(placed).group_by("partition").aggregate([("at", "min"), ("at", "max")]).to_pydict()
    first, last = (tx.take(pa.array(found[at], pa.int64())).to_pylist() for at in ("at_min", "at_max"))
    partitions = found["partition"]
    return dict(zip(partitions, first, strict=True)), dict(zip(partitions, last, strict=True))


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
