"""What every sink must do. Subclass `SinkContract`, name it `Test…`, and give the two fixtures at its top."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sink_epochs import CHANGE, ROW, Epochs, Read, Row, a_table, require_partial, rows, schema_json, written
from sink_markers import MarkersContract

from backfill_cli.contracts import Sink
from backfill_cli.errors import BadData, Held, SinkInUse
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.plan import Staged, StagedTable
from backfill_cli.model.split import SplitProgress, SplitStatus

__all__ = ["ROW", "Epochs", "Read", "Row", "SinkContract", "a_table", "rows", "schema_json"]


class SinkContract(MarkersContract):
    """Fixtures to provide: `sink`, an empty one; `read`, which reads a target's rows without the sink."""

    @pytest.fixture
    def sink(self) -> Sink:
        raise pytest.UsageError("a SinkContract needs a `sink` fixture")

    @pytest.fixture
    def read(self) -> Read:
        raise pytest.UsageError("a SinkContract needs a `read` fixture")

    @pytest.fixture
    def epochs(self, tmp_path: Path, sink: Sink) -> Epochs:
        built = Epochs(tmp_path / "staging")
        sink.prepare(built.job, built.tables, into_existing=False)
        sink.fence(built.job, built.token)
        return built

    # Rows

    def test_snapshot_rows_arrive(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        assert read("orders") == rows((1, "a"), (2, "b"))

    def test_changes_are_applied_by_key_whether_the_row_exists_or_not(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"))))
        sink.commit(epochs.next(upserts=rows((2, "B"), (4, "d")), deletes=[3, 99]))
        assert read("orders") == rows((1, "a"), (2, "B"), (4, "d"))

    def test_case_05_a_key_deleted_and_written_again_in_one_epoch_is_there_once(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.commit(epochs.next(deletes=[1]))
        sink.commit(epochs.next(upserts=rows((1, "again"))))
        assert read("orders") == rows((1, "again"))

    def test_inserts_of_an_epoch_come_before_its_changes(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b")), upserts=rows((1, "A")), deletes=[2]))
        assert read("orders") == rows((1, "A"))

    def test_an_epoch_without_rows_moves_the_marker(self, sink: Sink, epochs: Epochs) -> None:
        sink.commit(epochs.next())
        assert sink.committed("orders") == {"orders": Marker(10, 1, "a10")}

    def test_null_and_empty_string_stay_apart(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        given = [{"id": 1, "name": None}, {"id": 2, "name": ""}, {"id": 3, "name": "null"}]
        sink.commit(epochs.next(inserts=given))
        assert read("orders") == given

    def test_case_59_empty_bytes_and_a_zero_byte_stay_apart(self, sink: Sink, read: Read, tmp_path: Path) -> None:
        table = a_table("blobs", schema=schema_json(id="long", name="binary"))
        epochs = Epochs(tmp_path / "s", job="blobs", tables=(table,))
        sink.prepare(epochs.job, epochs.tables, into_existing=False)
        given: list[Row] = [
            {"id": n, "name": one} for n, one in enumerate([b"", b"\0", b"\0\0", None, b"a\0", b""])
        ]
        schema = pa.schema([("id", pa.int64()), ("name", pa.binary())])
        commit = epochs.next()
        folder = Path(commit.folder)
        inserts = written(folder, "blobs/inserts/0.parquet", given[:3], schema)
        op = pa.field("_backfill_op", pa.string())
        upserts = [{"_backfill_op": "U", **row} for row in given[3:]]
        changes = written(folder, "blobs/changes/0.parquet", upserts, schema.insert(0, op))
        staged = StagedTable(inserts=inserts, changes=changes, rows=3, changed=3)
        sink.commit(replace(commit, staged=Staged(commit.attempt, {"blobs": staged})))
        found = [{**row, "name": None if row["name"] is None else bytes(row["name"])} for row in read("blobs")]
        assert found == given

    def test_case_79_many_deletes_by_a_composite_key_are_one_commit(
        self, sink: Sink, read: Read, tmp_path: Path
    ) -> None:
        many = 50_000
        table = a_table("pairs", key=("id", "name"))
        epochs = Epochs(tmp_path / "s", job="pairs", tables=(table,))
        sink.prepare(epochs.job, epochs.tables, into_existing=False)
        sink.commit(epochs.next(inserts=[{"id": n // 2, "name": "ab"[n % 2]} for n in range(many + 2)]))
        commit = epochs.next()
        gone = [{"_backfill_op": "D", "id": n // 2, "name": "ab"[n % 2]} for n in range(many)]
        files = written(Path(commit.folder), "pairs/changes/0.parquet", gone, CHANGE)
        staged = Staged(commit.attempt, {"pairs": StagedTable(changes=files, deleted=many)})
        sink.commit(replace(commit, staged=staged))
        assert read("pairs") == [{"id": many // 2, "name": "a"}, {"id": many // 2, "name": "b"}]

    def test_a_truncate_deletes_what_the_sink_held_before_the_epochs_own_rows(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        require_partial(sink)
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        sink.commit(
            epochs.next(truncated=True, inserts=rows((2, "B"), (3, "c")), upserts=rows((3, "C"), (4, "d")))
        )
        assert read("orders") == rows((2, "B"), (3, "C"), (4, "d"))
        sink.commit(epochs.next(truncated=True))
        assert read("orders") == []

    def test_columns_that_a_change_leaves_out_stay_as_the_sink_has_them(
        self, sink: Sink, read: Read, tmp_path: Path
    ) -> None:
        require_partial(sink)
        epochs = Epochs(tmp_path / "staging")
        sink.prepare(epochs.job, epochs.tables, into_existing=False)
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"), (3, "c"), (4, "d"))))
        left = {"name": "means nothing", "_backfill_unsent": ["name"]}
        sent = [{"id": 2, "name": "B", "_backfill_unsent": []}, {"id": 3, "name": None, "_backfill_unsent": None}]
        sink.commit(epochs.next(inserts=rows((5, "e")), upserts=[{"id": 1, **left}, {"id": 5, **left}, *sent]))
        assert read("orders") == rows((1, "a"), (2, "B"), (3, None), (4, "d"), (5, "e"))  # type: ignore[arg-type]

    def test_a_change_that_leaves_columns_out_of_a_row_that_is_not_there_is_refused(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        require_partial(sink)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        lost = [{"id": key, "name": None, "_backfill_unsent": ["name"]} for key in (1, 8)]
        commit = epochs.next(upserts=lost)
        with pytest.raises(BadData, match=r"'orders'.*no row with the key \(id\).*: \(8\), without name\n"):
            sink.commit(commit)
        of_a_topic = tuple(replace(table, place=("id", "id")) for table in commit.tables)
        with pytest.raises(BadData, match=r": \(8\) of the record at partition 8, offset 8, without name\n"):
            sink.commit(replace(commit, tables=of_a_topic))
        assert read("orders") == rows((1, "a"))
        assert sink.committed("orders")["orders"].epoch == 10

    @pytest.mark.parametrize("why", [{"converging": True}, {"filling": frozenset({"orders"})}])
    def test_until_the_sink_has_converged_such_a_change_is_left_out(
        self, sink: Sink, read: Read, epochs: Epochs, why: dict[str, Any]
    ) -> None:
        """The row was deleted before it could be read, and its delete comes later; or a refill brings it."""
        require_partial(sink)
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        gone = [{"id": key, "name": None, "_backfill_unsent": ["name"]} for key in (1, 8)]
        commit = epochs.next(upserts=[*gone, {"id": 3, "name": "c", "_backfill_unsent": None}], deletes=[2])
        sink.commit(replace(commit, **why))
        assert read("orders") == rows((1, "a"), (3, "c"))

    # Keys

    def test_a_key_that_stands_twice_is_named_and_nothing_is_kept(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"), (7, "b"))))
        with pytest.raises(BadData, match=r"'orders'.*\(id\).*\(7\) 2 times"):
            sink.commit(epochs.next(inserts=rows((7, "again"), (8, "c")), unique=("orders",)))
        assert read("orders") == rows((1, "a"), (7, "b"))
        assert sink.committed("orders")["orders"].epoch == 10

    def test_rows_inserted_into_an_existing_table_replace_those_of_their_key(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "old"), (2, "old"))))
        epochs.tables = (a_table(plain_inserts=False),)
        sink.commit(epochs.next(inserts=rows((2, "new"), (3, "new")), unique=("orders",)))
        assert read("orders") == rows((1, "old"), (2, "new"), (3, "new"))

    # Prepare

    def test_prepare_changes_nothing_when_all_is_there(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.prepare("orders", epochs.tables, into_existing=False)
        assert read("orders") == rows((1, "a"))
        assert sink.committed("orders")["orders"] == Marker(10, 1, "a10")

    def test_a_new_column_is_added_and_older_rows_have_null(
        self, sink: Sink, read: Read, epochs: Epochs, tmp_path: Path
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        epochs.tables = (a_table(schema=schema_json(id="long", name="string", note="string")),)
        sink.prepare("orders", epochs.tables, into_existing=False)
        assert read("orders") == [{"id": 1, "name": "a", "note": None}]

    def test_a_column_that_changes_its_type_is_refused(self, sink: Sink, epochs: Epochs) -> None:
        changed = a_table(schema=schema_json(id="long", name="double"))
        with pytest.raises(BadData, match="name"):
            sink.prepare("orders", (changed,), into_existing=False)

    def test_a_type_that_would_not_survive_is_refused_and_named(self, sink: Sink) -> None:
        odd = a_table("odd", schema=schema_json(id="long", v="variant"))
        with pytest.raises(BadData, match=r"'odd'.*'v'.*variant"):
            sink.prepare("other", (odd,), into_existing=False)

    def test_a_table_of_another_job_is_refused_naming_that_job(self, sink: Sink, epochs: Epochs) -> None:
        with pytest.raises(Held, match="'orders'"):
            sink.prepare("second", (a_table("mine", "orders"),), into_existing=True)

    def test_a_table_with_rows_of_nobody_is_refused_unless_told(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.forget("orders")
        with pytest.raises(SinkInUse, match="orders"):
            sink.prepare("fresh", epochs.tables, into_existing=False)
        assert sink.committed("fresh") == {}
        sink.prepare("fresh", epochs.tables, into_existing=True)
        assert read("orders") == rows((1, "a"))

    def test_an_empty_table_of_nobody_is_taken(self, sink: Sink, epochs: Epochs) -> None:
        sink.forget("orders")
        sink.prepare("fresh", epochs.tables, into_existing=False)

    # State saved for a lost catalog

    def test_nothing_is_saved_before_the_first_commit(self, sink: Sink, epochs: Epochs) -> None:
        assert sink.saved("orders") is None
        assert sink.saved("never heard of") is None

    def test_saved_returns_the_last_checkpoint_with_all_splits(self, sink: Sink, epochs: Epochs) -> None:
        first = SplitProgress(SplitStatus.CONSUMED, 5, 5, 10)
        second = SplitProgress(SplitStatus.CONSUMING, 3, 3, 20)
        sink.commit(epochs.next(splits={("orders", "f1"): first, ("orders", "f2"): SplitProgress()}))
        last = epochs.next(splits={("orders", "f2"): second}, definition='{"pin": 2}')
        sink.commit(last)
        saved = sink.saved("orders")
        assert saved is not None
        assert saved.definition == '{"pin": 2}'
        assert saved.checkpoint == replace(
            last.saved.checkpoint,
            splits={("orders", "f1"): first, ("orders", "f2"): second},
            plan=None,
            staged=None,
        )

    def test_saved_returns_partitions_with_their_targets_those_newer_than_the_pin_too(
        self, sink: Sink, epochs: Epochs
    ) -> None:
        pinned = SplitProgress(SplitStatus.BACKFILLING, 70, 12, 10, 140)
        newer = SplitProgress(SplitStatus.FINISHED, 3, 0, 20)
        sink.commit(epochs.next(splits={("orders", "0"): pinned}))
        sink.commit(epochs.next(splits={("orders", "1"): newer}))
        saved = sink.saved("orders")
        assert saved is not None
        assert saved.checkpoint.splits == {("orders", "0"): pinned, ("orders", "1"): newer}

    def test_forget_removes_the_job_and_leaves_its_rows_and_other_jobs(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.prepare("other", (a_table("items"),), into_existing=False)
        sink.commit(epochs.next(inserts=rows((1, "a")), splits={("orders", "f"): SplitProgress()}))
        sink.forget("orders")
        assert (sink.committed("orders"), sink.saved("orders")) == ({}, None)
        assert set(sink.committed("other")) == {"items"}
        assert read("orders") == rows((1, "a"))

    def test_drop_drops_the_tables_that_it_is_told_and_no_other(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        other = Epochs(epochs.folder, "other", tables=(a_table("items"),), epoch=epochs.epoch)
        sink.prepare("other", other.tables, into_existing=False)
        sink.commit(other.next(inserts=rows((5, "e"))))
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.drop(epochs.tables)
        assert set(sink.committed("orders")) == {"orders"}, "who dies now finds the job again"
        sink.drop(epochs.tables)
        sink.forget("orders")
        assert read("items") == rows((5, "e"))
        sink.prepare("orders", epochs.tables, into_existing=False)
        assert read("orders") == []

    @pytest.mark.parametrize("with_rows", [False, True])
    def test_a_table_leaves_a_job_which_goes_on_and_another_job_can_have_it(
        self, sink: Sink, read: Read, epochs: Epochs, with_rows: bool
    ) -> None:
        stays, leaves = a_table("stays"), a_table("leaves")
        pair = Epochs(epochs.folder, "pair", tables=(stays, leaves))
        sink.prepare("pair", pair.tables, into_existing=False)
        sink.fence("pair", 1)
        sink.commit(pair.next(inserts=rows((1, "a")), of="leaves"))
        if with_rows:
            sink.drop([leaves])
            assert "leaves" in sink.committed("pair"), "a run that dies now leaves a marker: the next one knows it"
            sink.drop([leaves])
        sink.leave("pair", ["leaves"])
        sink.leave("pair", ["leaves"])
        assert set(sink.committed("pair")) == {"stays"}
        assert sink.saved("pair") is not None
        sink.fence("pair", 2)
        alone = replace(pair, tables=(stays,), token=2)
        sink.prepare("pair", alone.tables, into_existing=True)
        sink.commit(alone.next(inserts=rows((2, "b"))))
        assert read("stays") == rows((2, "b"))
        assert {name: one.epoch for name, one in sink.committed("pair").items()} == {"stays": alone.epoch}
        saved = sink.saved("pair")
        assert saved is not None
        assert saved.checkpoint.epoch == alone.epoch
        if not with_rows:
            assert read("leaves") == rows((1, "a"))
            with pytest.raises(SinkInUse, match="leaves"):
                sink.prepare("fresh", (leaves,), into_existing=False)
        sink.prepare("fresh", (leaves,), into_existing=not with_rows)
        assert read("leaves") == ([] if with_rows else rows((1, "a")))

    def test_a_sink_that_is_not_there_yet_knows_nothing(self, sink: Sink) -> None:
        sink.fence("orders", 3)
        sink.forget("orders")
        assert sink.committed("orders") == {}
