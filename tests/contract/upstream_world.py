"""An upstream that a test writes to: what every one offers, and how its rows and changes are read back.

Its one table has the columns `id BIGINT` (the key) and `name STRING`.
"""

from collections.abc import Iterable, Sequence
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from backfill_cli.contracts import LogRequest, Source
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split
from backfill_cli.model.upstream import Pin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
TABLE = "orders"


class World(Protocol):
    """An upstream that the suite can write to. Every call of `load` and `land` is complete when it returns."""

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        """Write the snapshot, a split for each list of rows. Called once, before anything is opened.

        These rows are not in the log.
        """
        ...

    def land(self, changes: Sequence[tuple[str, Row | None, Row | None]]) -> None:
        """Write one upstream epoch: `(op, before, after)` with op insert, update or delete, in order.

        All its changes have one and the same source time, later than that of the epoch before.
        """
        ...

    def open(self) -> Source:
        """A new object on this upstream, as a new process would have it."""
        ...


@runtime_checkable
class DamagedWorld(World, Protocol):
    """A world that can also damage a snapshot: not every upstream has one that can change once it is pinned."""

    def damage(self) -> None:
        """Remove a part of what `load` wrote, in a way that no reader can undo."""
        ...


def row(key: int, name: str | None) -> Row:
    return {"id": key, "name": name}


def rows_of(frame: "DataFrame", *columns: str) -> list[Row]:
    """The rows of a frame, by key and name."""
    found: list[Row] = frame.select(*(columns or ("id", "name"))).toArrow().to_pylist()
    return sorted(found, key=lambda r: (r["id"], str(r["name"])))


def splits_of(pin: Pin) -> list[Split]:
    """Those of the suite's table: an upstream can have others beside it."""
    return [split for split in pin.splits if split.table == TABLE]


def whole(upstream: Source, pin: Pin) -> list[SnapshotRead]:
    splits = splits_of(pin)
    if upstream.capabilities.log is not None:
        reads = [SnapshotRead(s.table, s.id, limit_rows=1_000) for s in splits]
        return list(upstream.closed(TABLE, reads))
    if upstream.capabilities.partitions is not None:  # offsets, each range with its begin and its end
        return [SnapshotRead(s.table, s.id, 0, s.rows) for s in splits]
    return [SnapshotRead(s.table, s.id) for s in splits]


def changes(upstream: Source, spark: "SparkSession", after: Position, up_to: Position, pin: Pin) -> "DataFrame":
    """The changes of a window; of a log that must be taken the files that it was taken into."""
    log = upstream.capabilities.log
    if log is None:
        return upstream.changes(spark, TABLE, after, up_to, pin.schema[TABLE])
    folder = mkdtemp()
    taken = log.take(spark, LogRequest(ChangeWindow(after, up_to, 0, 0, 1), None, dict(pin.schema), folder))
    assert taken.window.up_to == up_to
    paths = [f"{folder}/{file.path}" for file in taken.tables[TABLE].files] if TABLE in taken.tables else []
    shape = "_backfill_op STRING, _backfill_seq BIGINT, _backfill_ms BIGINT, id BIGINT, name STRING"
    return spark.read.parquet(*paths) if paths else spark.createDataFrame([], shape)


def replayed(frame: "DataFrame", onto: Iterable[Row] = ()) -> list[Row]:
    """The table after a frame of changes, applied in the order of `_backfill_seq`."""
    table = {r["id"]: r["name"] for r in onto}
    for change in frame.orderBy("_backfill_seq").select("_backfill_op", "id", "name").toArrow().to_pylist():
        table.pop(change["id"], None)
        if change["_backfill_op"] == "U":
            table[change["id"]] = change["name"]
    return [row(key, table[key]) for key in sorted(table)]
