"""The net change of each key, once for each place where rows are: Spark frames, Arrow tables, rows in Python.

A log has several changes of a key; the last one counts. A row can lack columns that it did not change: each is
taken from the key's newest earlier row that has it, as far as the log has one since the key's last delete. One set
of properties (tests/cdc/test_net_changes.py) holds for all.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import own
from backfill_cli.spark.api import Column, DataFrame, F
from backfill_cli.spark.names import quoted

if TYPE_CHECKING:
    import pyarrow as pa

# -- in Spark -----------------------------------------------------------------------------------------------------


def net(changes: DataFrame, key: Sequence[str], lacking: Sequence[str] = ()) -> DataFrame:
    """The last change of each key: `(own.OP 'U'|'D', [own.UNSENT,] row…)`, in no particular order.

    changes: `(own.OP, own.SEQ, own.MS, [own.UNSENT ARRAY<STRING>,] row…)`; of a key's rows that with the largest
    `own.SEQ` is the last. lacking: the columns that `own.UNSENT` can name: those that a 'U' row lacks. In the
    result it names those that no row of the key has, NULL if there are none; without `lacking` there is no such
    column.
    """
    row = [name for name in changes.columns if name not in (own.OP, own.SEQ, own.MS, own.UNSENT)]
    last = F.max_by(F.struct(own.OP, *map(quoted, row)), own.SEQ).alias(own.LAST)
    keys = [quoted(name).alias(own.numbered(own.KEY, i)) for i, name in enumerate(key)]
    carriers = [
        F.max_by(F.struct(own.OP, quoted(name).alias(own.VALUE)), F.when(~_lacks(name), F.col(own.SEQ)))
        for name in lacking
    ]
    named = [carrier.alias(own.numbered(own.VALUE, i)) for i, carrier in enumerate(carriers)]
    found = changes.groupBy(*keys).agg(last, *named)
    if not lacking:
        return found.select(f"{own.LAST}.*")
    carried = {name: F.col(own.numbered(own.VALUE, i)) for i, name in enumerate(lacking)}
    has = {name: F.coalesce(one[own.OP] == "U", F.lit(False)) for name, one in carried.items()}

    def value(name: str) -> Column:
        kept = quoted(name, of=own.LAST)
        return F.when(has[name], carried[name][own.VALUE]).otherwise(kept) if name in carried else kept

    op = F.col(f"{own.LAST}.{own.OP}")
    left = F.array_compact(F.array(*(F.when((op == "U") & ~there, F.lit(name)) for name, there in has.items())))
    unsent = F.when(F.size(left) > 0, left).alias(own.UNSENT)
    return found.select(op.alias(own.OP), unsent, *(value(name).alias(name) for name in row))


def over(rows: DataFrame, changes: DataFrame, key: Sequence[str], lacking: Sequence[str]) -> DataFrame:
    """Rows that were read, and the net changes that follow them, as net changes: `(own.OP, [own.UNSENT,] row…)`.

    rows: columns as in `changes`. lacking: the columns that `own.UNSENT` of `changes` can name. A change replaces
    the row of its key, which has what the change lacks. A duplicate key among `rows` that no change has stays one.
    """
    unsent = [F.lit(None).cast("array<string>").alias(own.UNSENT)] if lacking else []
    as_changes = rows.select(F.lit("U").alias(own.OP), *unsent, *map(quoted, rows.columns))
    changed = changes.select(*map(quoted, key))
    alone = as_changes.join(changed, list(key), "left_anti").select(*map(quoted, as_changes.columns))
    if not lacking:
        return alone.unionByName(changes)
    replaced = as_changes.join(changed, list(key), "left_semi")
    both = replaced.withColumn(own.SEQ, F.lit(0)).unionByName(changes.withColumn(own.SEQ, F.lit(1)))
    return alone.unionByName(net(both, key, lacking))


def _lacks(name: str) -> Column:
    """Whether a change is a row without this column; a delete names none."""
    return F.coalesce(F.array_contains(own.UNSENT, name), F.lit(False))


# -- in Arrow -----------------------------------------------------------------------------------------------------


def last_rows(changes: "pa.Table", key: Sequence[str]) -> "pa.Table":
    """The last change of each key, with the same columns, in the order of the log.

    changes: in the order of the log; none lacks a column, and no key is nested. 0 and -0 are one key, and so are
    all NaNs, as in Spark and in sinks.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = [str(at) for at in range(len(key))]
    number = pc.cumulative_sum(pa.repeat(pa.scalar(1), changes.num_rows), start=-1)
    keys = pa.table([*(compared(changes[name]) for name in key), number], [*names, "number"])
    last = keys.group_by(names).aggregate([("number", "max")])["number_max"]
    return changes if len(last) == changes.num_rows else changes.take(last.take(pc.sort_indices(last)))


def are_distinct(rows: "pa.Table", key: Sequence[str]) -> bool:
    """Whether each key is that of one row, as `last_rows` compares them."""
    import pyarrow as pa

    keys = pa.table([compared(rows[name]) for name in key], [str(at) for at in range(len(key))])
    return bool(keys.group_by(keys.column_names).aggregate([]).num_rows == rows.num_rows)


def compared(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """A key's column as Spark and every sink compare it: 0 and -0 are equal, and so are all NaNs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_floating(column.type):
        return column
    one = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), one, pc.add(column, pa.scalar(0, column.type)))


# -- in Python ----------------------------------------------------------------------------------------------------


class Gap(Enum):
    """What a row has in place of a value."""

    UNSENT = "unchanged, and not sent"
    LOST = "as UNSENT, and no earlier row of its key is known to have it"


UNSENT, LOST = Gap.UNSENT, Gap.LOST

Row = list[Any]
"""Values in the table's order; UNSENT or LOST in place of those that the row lacks."""

Key = Any
"""The value of the key's column, or a tuple of values if it has several."""

Entry = tuple[int, int, Row | None]
"""(number of the change in the log, when it was committed in ms since 1970, the row or None: deleted)"""


class NeedsAll(Exception):
    """A row needs one that was written already: the log is read again, with all rows held."""


class NetChanges:
    """Changes of one table, applied in the order of the log; `entries` has the last one of each key.

    key_at: the places of the key's columns in a row. key_of: a row's key.
    gaps: whether a row can have UNSENT or LOST. written: whether rows left `entries` for a file. truncated: rows
    from before these changes are gone.
    """

    def __init__(self, key_at: Sequence[int], key_of: Callable[[Row], Key]) -> None:
        self.key_at, self.key_of = tuple(key_at), key_of
        self.entries: dict[Key, Entry] = {}
        self.gaps = self.written = self.truncated = False

    def insert(self, row: Row, number: int, ms: int) -> None:
        self.entries[self.key_of(row)] = (number, ms, row)

    def require_identity(self) -> None:
        """Check that the log tells the key of a row that is updated or deleted: called for each."""

    def delete(self, old: Row, number: int, ms: int) -> None:
        """old: at least its key is set."""
        self.require_identity()
        self.entries[self.key_of(old)] = (number, ms, None)

    def update(self, row: Row, gaps: bool, old: Row | None, whole: bool, number: int, ms: int) -> bool:
        """Whether the key changed: then number is that of the old key's delete, number + 1 that of the row.

        gaps: whether the row has UNSENT. old: as in the log, None if the key is unchanged. whole: old is the whole
        row, not only the key.
        """
        self.require_identity()
        if old is None:
            key = old_key = self.key_of(row)
        else:
            if gaps:
                for at in range(len(row)) if whole else self.key_at:
                    if row[at] is UNSENT:
                        row[at] = old[at]
                gaps = UNSENT in row
            key, old_key = self.key_of(row), self.key_of(old)
        moved = bool(key != old_key)
        if gaps:
            self._fill(row, old_key, moved)
        if moved:
            self.entries[old_key] = (number, ms, None)
            number += 1
        self.entries[key] = (number, ms, row)
        return moved

    def _fill(self, row: Row, old_key: Key, moved: bool) -> None:
        """Take unsent values from the key's previous row, as far as the log has them.

        A row that moved has no row in the sink under its new key to take them from.
        """
        held = self.entries.get(old_key)
        known = held[2] if held is not None else None
        for at, value in enumerate(row):
            if value is UNSENT:
                row[at] = known[at] if known is not None else UNSENT
                if row[at] is UNSENT and moved:
                    if self.written:
                        raise NeedsAll
                    row[at] = LOST
                self.gaps = self.gaps or isinstance(row[at], Gap)

    def truncate(self) -> None:
        self.entries.clear()
        self.truncated, self.gaps, self.written = True, False, False

    def add_columns(self, count: int) -> None:
        """Columns were added at the end, NULL in the rows so far."""
        if self.written:
            raise NeedsAll
        for _, _, row in self.entries.values():
            if row is not None:
                row.extend([None] * count)

    def lacking(self) -> tuple[set[int], dict[Key, Row]]:
        """The places of the columns that some row leaves unchanged; and the rows with a LOST value."""
        found: set[int] = set()
        lost: dict[Key, Row] = {}
        for key, (_, _, row) in self.entries.items() if self.gaps else ():
            if row is not None and any(isinstance(value, Gap) for value in row):
                if LOST in row:
                    lost[key] = row
                found.update(at for at, value in enumerate(row) if value is UNSENT)
        return found, lost

    def values(self, key: Key) -> tuple[Any, ...]:
        """The key's values, one or several."""
        return key if len(self.key_at) > 1 else (key,)
