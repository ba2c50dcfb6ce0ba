"""What every upstream must do. Subclass `UpstreamContract`, name it `Test…`, and give the fixture `world`.

The suite writes to the upstream through a `World` and reads it back through `contracts.Source`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import pytest
from upstream_world import TABLE, DamagedWorld, Row, World, changes, replayed, row, rows_of, splits_of, whole

from backfill_cli.contracts import ArrowTasks, Source
from backfill_cli.errors import BackfillError, Fatal, HistoryGone
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.spark.failures import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INITIAL = [[row(i, f"first {i}") for i in range(40)], [row(i, f"second {i}") for i in range(40, 70)]]
NAMES = [None, "", "null", 'with "quotes", commas\tand tabs', "üñí \\ 漢"]


class UpstreamContract:
    """Fixture to give: `world`, an upstream with nothing in it."""

    @pytest.fixture
    def world(self) -> World:
        raise pytest.UsageError("an UpstreamContract needs a `world` fixture")

    @pytest.fixture
    def loaded(self, world: World) -> World:
        world.load(INITIAL)
        return world

    # The pin

    def test_a_pin_is_the_same_from_every_process(self, loaded: World) -> None:
        assert loaded.open().pin() == loaded.open().pin()

    def test_a_restored_pin_observes_the_pins_identity(self, loaded: World) -> None:
        pin = loaded.open().pin()
        later = loaded.open()
        later.restore(pin)
        assert later.observe(pin.position, True).identity == pin.identity
        assert later.observe(pin.position, False).identity == pin.identity

    def test_a_snapshot_that_was_damaged_is_refused(self, loaded: World, spark: "SparkSession") -> None:
        if not isinstance(loaded, DamagedWorld):
            pytest.skip("this world cannot damage its snapshot")
        pin = loaded.open().pin()
        loaded.damage()
        later = loaded.open()

        def read() -> None:
            later.restore(pin)
            later.observe(pin.position, True)
            later.scan(spark, TABLE, whole(later, pin)).toArrow()

        with pytest.raises(Exception) as refused:  # noqa: PT011
            read()
        error = refused.value
        ours = error if isinstance(error, BackfillError) else later.failure(error) or from_spark(error)
        assert isinstance(ours, Fatal | HistoryGone), error

    def test_a_pin_names_all_rows_or_says_that_only_reading_tells(self, loaded: World) -> None:
        upstream = loaded.open()
        splits = splits_of(upstream.pin())
        assert all(s.rows is not None or not s.cuttable for s in splits)
        assert upstream.capabilities.log is not None or sum(s.rows or 0 for s in splits) in (0, 70)
        assert len({s.id for s in splits}) == len(splits)

    # The snapshot

    def test_reading_every_split_whole_gives_every_row_once(self, loaded: World, spark: "SparkSession") -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        frame = upstream.scan(spark, TABLE, whole(upstream, pin))
        assert rows_of(frame) == [r for split in INITIAL for r in split]

    def test_rows_that_workers_produce_are_those_of_the_frame(self, loaded: World, spark: "SparkSession") -> None:
        """Most jobs stage what `batches` gives; `verify`, and jobs with a transform, read what `scan` gives."""
        upstream = loaded.open()
        reads = whole(upstream, upstream.pin())
        tasks = upstream.batches(TABLE, reads, 2)
        if tasks is None:
            pytest.skip("rows of this upstream are read by Spark")
        assert rows_of(tasks.frame(spark)) == [r for split in INITIAL for r in split]
        self.require_counted(upstream, tasks, reads)

    def require_counted(self, upstream: Source, tasks: ArrowTasks, reads: Sequence[SnapshotRead]) -> None:
        """Each of these reads, which are all of `INITIAL`, has the rows that `row_count` says."""
        found = dict.fromkeys(range(len(reads)), 0)
        for piece in (piece for part in tasks.parts for piece in part):
            found[piece.read] += sum(batch.num_rows for batch in tasks.make(piece.what))
        known = {index: upstream.row_count(one) for index, one in enumerate(reads)}
        assert found == {index: found[index] if rows is None else rows for index, rows in known.items()}
        assert sum(found.values()) == 70

    @pytest.mark.parametrize("size", [3, 29, 40])
    def test_open_reads_go_on_where_they_ended_and_give_every_row_once(
        self, loaded: World, spark: "SparkSession", size: int
    ) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        if upstream.capabilities.partitions is not None or not all(s.cuttable for s in splits_of(pin)):
            pytest.skip("splits of this upstream are read whole, or by offsets")
        reads = [SnapshotRead(s.table, s.id, limit_rows=size) for s in splits_of(pin)]
        slices: list[SnapshotRead] = []
        while reads:
            closed = upstream.closed(TABLE, reads)
            assert [(r.split, r.after, r.limit_rows) for r in closed] == [(r.split, r.after, None) for r in reads]
            slices += closed
            reads = [replace(r, after=r.up_to, up_to=None, limit_rows=size) for r in closed if r.up_to is not None]
        counts = [upstream.row_count(read) for read in slices]
        if None not in counts:  # else only reading tells
            assert all(rows is not None and rows <= size for rows in counts)
            assert sum(rows or 0 for rows in counts) == 70
        tasks = upstream.batches(TABLE, slices, 2)
        if tasks is not None:
            self.require_counted(upstream, tasks, slices)
        frames = [upstream.scan(spark, TABLE, slices[turn::2]) for turn in range(2)]
        found = sorted((r for frame in frames for r in rows_of(frame)), key=lambda r: r["id"])
        assert found == [r for split in INITIAL for r in split]

    def test_open_ended_reads_tell_which_read_a_row_came_by(self, loaded: World, spark: "SparkSession") -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        reads = [SnapshotRead(s.table, s.id, 0, None) for s in splits_of(pin)]
        if all(s.cuttable for s in splits_of(pin)) or None not in map(upstream.row_count, reads):
            pytest.skip("splits of this upstream have a known end")
        counts = {
            r["_backfill_read"]: r["count"]
            for r in upstream.scan(spark, TABLE, reads).groupBy("_backfill_read").count().collect()
        }
        assert sorted(counts.values()) == [30, 40]

    def test_the_snapshots_columns_are_the_pins_schema(self, loaded: World, spark: "SparkSession") -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        frame = upstream.scan(spark, TABLE, whole(upstream, pin)).select("id", "name")
        assert [(f.name, f.dataType.simpleString()) for f in frame.schema] == [
            ("id", "bigint"),
            ("name", "string"),
        ]

    # The log

    def test_what_was_observed_is_not_pending_after_it(self, loaded: World) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("insert", None, row(100, "a"))])
        view = upstream.observe(self.log_begin(pin), True)
        assert view.pending
        assert upstream.observe(view.latest, True).pending == ()

    def test_observing_is_monotone_and_pending_epochs_are_in_order(self, loaded: World) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        if upstream.capabilities.log is not None:
            pytest.skip("this log tells what is pending as one")
        latest = self.log_begin(pin)
        for turn in range(3):
            loaded.land([("insert", None, row(100 + turn, "a"))])
            view = upstream.observe(self.log_begin(pin), False)
            assert latest <= view.latest
            latest = view.latest
        assert len(view.pending) == 3
        assert [e.ms for e in view.pending] == sorted(e.ms for e in view.pending)
        position = self.log_begin(pin)
        for index, epoch in enumerate(view.pending):
            assert upstream.observe(position, False).pending == view.pending[index:]
            position = position.join(Position.of(dict(epoch.cursors)))
        assert position == view.latest

    def test_windows_compose(self, loaded: World, spark: "SparkSession") -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        at = [self.log_begin(pin)]
        for turn in range(4):
            loaded.land(
                [("insert", None, row(100 + turn, "new")), ("update", row(turn, "?"), row(turn, f"t{turn}"))]
            )
            at.append(upstream.observe(self.log_begin(pin), False).latest)

        def between(low: int, high: int) -> list[Row]:
            return rows_of(changes(upstream, spark, at[low], at[high], pin))

        assert sorted(between(0, 2) + between(2, 4), key=lambda r: (r["id"], str(r["name"]))) == between(0, 4)
        assert len({r["id"] for r in between(1, 3)}) == 4
        assert between(3, 3) == []

    def test_changes_have_the_tables_columns_and_types(self, loaded: World, spark: "SparkSession") -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("insert", None, row(100, "new"))])
        latest = upstream.observe(self.log_begin(pin), False).latest
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        types = {f.name: f.dataType.simpleString() for f in frame.schema}
        assert types.pop("_backfill_seq")
        assert types.pop("_backfill_unsent", "array<string>") == "array<string>"  # where rows can lack columns
        assert types == {
            "_backfill_op": "string",
            "_backfill_ms": "bigint",
            "id": "bigint",
            "name": "string",
            **self.more_columns,
        }

    def test_values_come_through_as_they_are(self, loaded: World, spark: "SparkSession") -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("insert", None, row(100 + index, name)) for index, name in enumerate(NAMES)])
        latest = upstream.observe(self.log_begin(pin), False).latest
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        assert replayed(frame) == [row(100 + index, name) for index, name in enumerate(NAMES)]

    def test_changes_replayed_in_their_order_give_the_upstreams_table(
        self, loaded: World, spark: "SparkSession"
    ) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("update", row(1, "first 1"), row(1, "one")), ("delete", row(2, "first 2"), None)])
        loaded.land([("insert", None, row(2, "back")), ("update", row(1, "one"), row(1, "uno"))])
        loaded.land([("delete", row(69, "second 69"), None), ("insert", None, row(70, "new"))])
        latest = upstream.observe(self.log_begin(pin), False).latest
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        table = {r["id"]: r["name"] for r in replayed(frame, [r for split in INITIAL for r in split])}
        expected = {r["id"]: r["name"] for split in INITIAL for r in split} | {1: "uno", 2: "back", 70: "new"}
        del expected[69]
        assert table == expected

    def test_case_04_a_key_change_moves_the_row_whichever_way_it_goes(
        self, loaded: World, spark: "SparkSession"
    ) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        if not upstream.capabilities.before_images:
            pytest.skip("this log does not tell the old key")
        loaded.land(
            [("update", row(1, "first 1"), row(200, "up")), ("update", row(60, "second 60"), row(-5, "down"))]
        )
        latest = upstream.observe(self.log_begin(pin), False).latest
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        assert replayed(frame, [row(1, "first 1"), row(60, "second 60")]) == [row(-5, "down"), row(200, "up")]

    def test_case_05_a_row_deleted_and_written_again_in_one_epoch_is_there(
        self, loaded: World, spark: "SparkSession"
    ) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("delete", row(1, "first 1"), None), ("insert", None, row(1, "again"))])
        latest = upstream.observe(self.log_begin(pin), False).latest
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        assert replayed(frame, [row(1, "first 1")]) == [row(1, "again")]

    def test_case_06_of_many_updates_with_one_time_the_last_one_counts(
        self, loaded: World, spark: "SparkSession"
    ) -> None:
        upstream = loaded.open()
        if not self.keeps_order_in_an_epoch:
            pytest.skip("an epoch of this log holds each key once")
        pin = upstream.pin()
        loaded.land([("update", row(1, "?"), row(1, f"version {turn}")) for turn in range(50)])
        latest = upstream.observe(self.log_begin(pin), False).latest
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        assert replayed(frame, [row(1, "first 1")]) == [row(1, "version 49")]
        assert frame.where("_backfill_op = 'U'").select("_backfill_seq").distinct().count() == 50

    def test_changes_that_workers_produce_are_those_of_the_frame_in_the_order_of_the_log(
        self, loaded: World, spark: "SparkSession"
    ) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("update", row(1, "first 1"), row(1, "one")), ("delete", row(2, "first 2"), None)])
        loaded.land([("insert", None, row(2, "back")), ("update", row(1, "one"), row(1, "uno"))])
        latest = upstream.observe(self.log_begin(pin), False).latest
        schema = pin.schema[TABLE]
        tasks = upstream.change_batches(TABLE, self.log_begin(pin), latest, schema, 2)
        if tasks is None:
            pytest.skip("changes of this log are read by Spark")
        found = tasks.frame(spark).toArrow().to_pylist()
        frame = changes(upstream, spark, self.log_begin(pin), latest, pin)
        assert found == frame.select(*found[0]).orderBy("_backfill_seq").toArrow().to_pylist()
        assert len(tasks.parts) == 1
        nothing = upstream.change_batches(TABLE, latest, latest, schema, 2)
        assert nothing is not None
        assert nothing.parts == ()
        assert set(found[0]) - set(nothing.frame(spark).columns) <= {"_backfill_unsent"}

    keeps_order_in_an_epoch = True
    """Whether one epoch of this log may hold several changes of a key."""

    more_columns: ClassVar[dict[str, str]] = {}
    """What a frame of changes holds beside the contract's and the table's columns, with their types."""

    def log_begin(self, pin: Pin) -> Position:
        """Where the log goes on after all that `load` wrote. In a partitioned log that is part of it."""
        return pin.position

    def test_the_start_is_before_everything(self, loaded: World) -> None:
        loaded.land([("insert", None, row(100, "a"))])
        upstream = loaded.open()
        pin = upstream.pin()
        if upstream.capabilities.log is not None:
            pytest.skip("this log begins where the job does")
        assert pin.position >= START
        assert len(upstream.observe(START, False).pending) == 1

    def test_acknowledging_takes_nothing_away_that_is_still_pending(self, loaded: World) -> None:
        upstream = loaded.open()
        pin = upstream.pin()
        loaded.land([("insert", None, row(100, "a"))])
        first = upstream.observe(self.log_begin(pin), False).latest
        loaded.land([("insert", None, row(101, "b"))])
        upstream.acknowledge(first)
        assert len(upstream.observe(first, False).pending) == 1
        upstream.close()
