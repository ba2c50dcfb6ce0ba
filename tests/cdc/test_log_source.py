"""What databases with a log share, shown by a toy of one: against the suite for upstreams, and the lease."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import toy_database
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from toy_database import Change, ToyColumn, ToyDatabase, ToySource, covers
from upstream_contract import UpstreamContract
from upstream_world import Row, row, rows_of

from backfill_cli.cdc import ranges
from backfill_cli.cdc.ranges import KeyRange, Ranges
from backfill_cli.cdc.window import TakenWindow, WindowRequest
from backfill_cli.contracts import LogRequest
from backfill_cli.errors import HistoryGone, StateConflict, Transient, UsageError
from backfill_cli.model.limit import Limit
from backfill_cli.model.plan import ChangeWindow, SnapshotRead
from backfill_cli.model.position import Position
from backfill_cli.model.split import Split

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True, scope="module")
def workers_have_it() -> Iterator[None]:
    """Workers do not import what is under tests/."""
    cloudpickle.register_pickle_by_value(toy_database)
    yield
    cloudpickle.unregister_pickle_by_value(toy_database)


class ToyWorld:
    def __init__(self, folder: Path) -> None:
        self.database = ToyDatabase(str(folder))

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        self.database.commit([("insert", None, one) for rows in splits for one in rows])
        self.open().create("mark")

    def land(self, changes: Sequence[Change]) -> None:
        self.database.commit(changes)

    def open(self) -> ToySource:
        return ToySource(self.database)


class TestToyDatabase(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyWorld:  # type: ignore[override]
        monkeypatch.setattr(ranges, "SPLIT_ROWS", 30)
        return ToyWorld(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> ToyDatabase:
    made = ToyDatabase(str(tmp_path))
    made.commit([("insert", None, row(key, "first")) for key in range(10)])
    return made


def started(database: ToyDatabase, limit_bytes: int | None = None) -> ToySource:
    source = ToySource(database, limit_bytes=limit_bytes)
    source.create("mark")
    source.adopt("mark", source.pin())
    return source


class Waiting(ToySource):
    """A database whose chunks wait for transactions; `oldest` is the oldest one that is open."""

    oldest = 5

    def _newest_transaction(self) -> int:
        return 7

    def _open_before(self, since: int) -> Limit | None:
        return Limit("somebody") if self.oldest < since else None

    def _take(self, spark: "SparkSession", request: WindowRequest[ToyColumn]) -> TakenWindow[ToyColumn]:
        return TakenWindow(request.up_to)


def test_once_the_transactions_of_when_a_table_joined_have_ended_no_later_one_is_waited_for(
    database: ToyDatabase,
) -> None:
    """Though no chunk is read: a table that is put back has none."""
    ToySource(database).create("mark")
    source: Any = Waiting(database)
    pin = source.pin()

    def after(at: int) -> str:
        window = ChangeWindow(Position.of({"toy": at}), Position.of({"toy": at + 1}), 0, 0, 1)
        source.take(None, LogRequest(window, None, pin.schema, ""))
        remembered: str = source.remembered(window.up_to)
        return remembered

    before = json.loads(after(1)) | {"read": True}
    source.recall(source.rejoined(json.dumps(before), ["orders"]))
    assert source._visibility.since == 7
    waits = after(2)
    assert not json.loads(waits)["read"], "one of then is still open"
    source.oldest = 7
    memory = after(3)
    assert json.loads(memory)["read"]
    again: Any = Waiting(database)
    again.restore(pin)
    again.recall(memory)
    assert again._visibility.since is None, "whatever is open by now"


def test_a_change_counts_if_its_key_was_read(database: ToyDatabase, spark: "SparkSession", tmp_path: Path) -> None:
    """Keys up to 4 are read; the row that moves away from them is deleted there, and will be read where it is."""
    source = started(database)
    pin = source.pin()
    (split,) = pin.splits
    (read,) = source.closed("orders", [SnapshotRead("orders", split.id, limit_rows=5)])
    assert read.up_to == 4
    database.commit([("update", row(1, "first"), row(1, "new")), ("update", row(2, "first"), row(50, "moved"))])
    database.commit([("delete", row(9, "first"), None)])
    rows = rows_of(source.scan(spark, "orders", [read]))
    window = ChangeWindow(pin.position, pin.position, 0, 0, 1, open=True)
    within = {("orders", split.id): read.up_to}
    taken = source.take(spark, LogRequest(window, within, dict(pin.schema), str(tmp_path)))
    changes = spark.read.parquet(*(f"{tmp_path}/{file.path}" for file in taken.tables["orders"].files))
    found = {(r["_backfill_op"], r["id"]) for r in rows_of(changes, "_backfill_op", "id", "name")}
    assert found == {("U", 1), ("D", 2)}
    assert [r["id"] for r in rows] == [0, 1, 3, 4]
    assert taken.window.up_to == Position.of({"toy": 3})
    assert source.remembered(taken.window.up_to) != source.remembered(pin.position)


def test_a_lease_is_its_marks_until_it_is_adopted(database: ToyDatabase) -> None:
    source = ToySource(database)
    source.create("mark")
    pin = source.pin()
    other = ToySource(database)
    assert (other.leftovers("mark"), other.leftovers("another")) == (["lease 'job'"], [])
    other.clean_up("another", pin)
    with pytest.raises(UsageError, match="this job did not create it"):
        other.create("another")
    other.create("mark")  # again, as after an answer that was lost
    other.adopt("mark", pin)
    ToySource(database).clean_up("mark", pin)
    assert other.held() == {"at": 1, "mark": ""}
    source.clean_up("mark", pin)  # by the process that made it
    assert other.held() == {}


def test_a_lease_of_another_system_is_left_alone(database: ToyDatabase, tmp_path: Path) -> None:
    pin = started(database).pin()
    (tmp_path / "other").mkdir()
    other = started(ToyDatabase(str(tmp_path / "other")))
    for act in (
        lambda: other.adopt("mark", pin),
        lambda: other.clean_up("mark", pin),
        lambda: other.release(pin),
        lambda: other.require_releasable(pin),
    ):
        with pytest.raises(StateConflict):
            act()
    assert other.held()


def test_a_lease_that_is_used_is_not_released(database: ToyDatabase, tmp_path: Path) -> None:
    source = started(database)
    pin = source.pin()
    busy = tmp_path / "lease-job.busy"
    busy.touch()
    for act in (source.require_releasable, source.release):
        with pytest.raises(Transient):
            act(pin)
    busy.unlink()
    source.require_releasable(pin)
    source.release(pin)
    source.release(pin)
    assert source.held() == {}


def test_a_lease_that_holds_more_than_its_limit_is_given_up(database: ToyDatabase) -> None:
    source = started(database, limit_bytes=100)
    pin = source.pin()
    source.enforce_limit(pin.position, True)
    database.commit([("insert", None, row(key, "much")) for key in range(20, 30)])
    with pytest.raises(HistoryGone, match=r"lease 'job' held back .* upstream.max_retained \(100 B\)"):
        source.enforce_limit(pin.position, True)
    assert source.held() == {}


KEYS = st.integers(0, 30)


@given(
    st.lists(KEYS, unique=True, max_size=3),
    st.lists(KEYS, unique=True, max_size=30),
    st.integers(1, 12),
    st.integers(1, 5),
)
def test_reads_cut_into_chunks_have_each_key_once(cuts: list[int], keys: list[int], limit: int, most: int) -> None:
    splits = ranges_of(sorted(cuts), len(cuts) + 1)
    read = Ranges(splits)
    table, found, sizes = sorted(keys), [], []

    def key_after(keys: KeyRange, rows: int) -> int | None:
        return next(iter([key for key in table if covers(keys, key)][rows - 1 :]), None)

    for split in splits:
        one: SnapshotRead | None = SnapshotRead("t", split.id, limit_rows=limit)
        while one is not None:
            closed = read.closed(one, most, key_after)
            for part in read.parts(closed):
                chunk = [key for key in table if covers(part, key)]
                found += chunk
                sizes.append(len(chunk))
            one = None if closed.up_to is None else SnapshotRead("t", split.id, closed.up_to, limit_rows=limit)
    assert sorted(found) == table
    assert max(sizes) <= min(limit, most)


@given(st.lists(KEYS, unique=True, min_size=1, max_size=3), st.data())
def test_a_key_is_covered_once_its_range_was_read_so_far(cuts: list[int], data: st.DataObject) -> None:
    splits = ranges_of(sorted(cuts), len(cuts) + 1)
    read = Ranges(splits)
    reached = {}
    for split in splits:
        low, high = read.keys(SnapshotRead("t", split.id))
        ends = [None, *(key for key in range(31) if covers(KeyRange(low, high), key))]
        if data.draw(st.booleans()):
            reached["t", split.id] = data.draw(st.sampled_from(ends))
    right = set()
    for (_, split_id), end in reached.items():
        low, high = read.keys(SnapshotRead("t", split_id))
        right |= {key for key in range(-5, 40) if covers(KeyRange(low, high if end is None else end), key)}
    found = read.covered(reached)
    whole = {key for key in range(-5, 40) if "t" not in found or any(covers(keys, key) for keys in found["t"])}
    assert whole == right


def ranges_of(cuts: list[int], count: int) -> list[Split]:
    return [*ranges.splits("t", ranges.SPLIT_ROWS * count, 1, lambda _most: cuts)]
