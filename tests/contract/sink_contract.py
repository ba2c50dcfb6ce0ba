"""What every sink must do. Subclass `SinkContract`, name it `Test…`, and give the two fixtures at its top.

Staged files are written with pyarrow, so no Spark is needed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.contracts import EpochCommit, SavedJob, Sink, SinkTable
from backfill_cli.errors import BadData, Held, SinkInUse, StateConflict
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import EpochPlan, Staged, StagedFile, StagedTable
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress, SplitStatus

Row = dict[str, Any]
Read = Callable[[str], list[Row]]
"""target -> its rows in the order of `id`"""

HERE = Owner("id-1", "host", "/here/catalog.duckdb")
ELSEWHERE = Owner("id-2", "host", "/elsewhere/catalog.duckdb")

ROW = pa.schema([("id", pa.int64()), ("name", pa.string())])
CHANGE = pa.schema([("_op", pa.string()), *ROW])
UNSENT = pa.field("_unsent", pa.list_(pa.string()))


def schema_json(**columns: str) -> str:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def a_table(name: str = "orders", target: str | None = None, **changes: Any) -> SinkTable:
    table = SinkTable(name, target or name, ("id",), schema_json(id="long", name="string"))
    return replace(table, **changes)


def rows(*pairs: tuple[int, str]) -> list[Row]:
    return [{"id": key, "name": name} for key, name in pairs]


@dataclass
class Epochs:
    """Builds a job's commits one after the other, each with its staged files below `folder`."""

    folder: Path
    job: str = "orders"
    token: int = 1
    tables: tuple[SinkTable, ...] = field(default_factory=lambda: (a_table(),))
    epoch: int = 0

    def next(
        self,
        inserts: Sequence[Row] = (),
        upserts: Sequence[Row] = (),
        deletes: Sequence[int] = (),
        unique: tuple[str, ...] = (),
        splits: dict[tuple[str, str], SplitProgress] | None = None,
        of: str | None = None,
        definition: str = '{"pin": 1}',
        truncated: bool = False,
    ) -> EpochCommit:
        """The commit after the last one built, with rows for one table (`of`, the first if not given)."""
        prev, self.epoch = self.epoch, self.epoch + 10
        attempt = f"a{self.epoch}"
        folder = self.folder / self.job / f"{self.epoch}-{attempt}"
        staged = stage(folder, of or self.tables[0].name, inserts, upserts, deletes)
        staged = replace(staged, truncated=truncated)
        checkpoint = Checkpoint(
            epoch=self.epoch,
            prev_ms=prev,
            token=self.token,
            attempt=attempt,
            state=f'{{"epoch": {self.epoch}}}',
            phase=Phase.SNAPSHOT,
            position=Position.of({"log": self.epoch}),
            splits=splits or {},
            plan=EpochPlan(),
            staged=Staged(attempt),
        )
        return EpochCommit(
            job=self.job,
            epoch=self.epoch,
            prev_epoch=prev,
            token=self.token,
            attempt=attempt,
            tables=self.tables,
            folder=str(folder),
            staged=Staged(attempt, {of or self.tables[0].name: staged}),
            unique=unique,
            saved=SavedJob(definition, checkpoint),
        )


def stage(
    folder: Path, table: str, inserts: Sequence[Row], upserts: Sequence[Row], deletes: Sequence[int]
) -> StagedTable:
    """Files as the engine stages them: inserts, and changes net by key where a delete holds its key alone.

    An upsert may name columns that it leaves as they are: `_unsent`.
    """
    changes = [{"_op": "U", **row} for row in upserts] + [{"_op": "D", "id": key} for key in deletes]
    partial = tuple(sorted({name for row in upserts for name in row.get("_unsent") or ()}))
    return StagedTable(
        partial=partial,
        inserts=_written(folder, f"{table}/inserts/0.parquet", inserts, ROW),
        changes=_written(
            folder, f"{table}/changes/0.parquet", changes, CHANGE.append(UNSENT) if partial else CHANGE
        ),
        rows=len(inserts),
        changed=len(upserts),
        deleted=len(deletes),
    )


def _written(folder: Path, path: str, data: Sequence[Row], schema: pa.Schema) -> tuple[StagedFile, ...]:
    if not data:
        return ()
    (folder / path).parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(data), schema), folder / path)
    return (StagedFile(path, (folder / path).stat().st_size),)


def require_partial(sink: Sink) -> None:
    if not sink.partial:
        pytest.skip("this sink says that it takes no partial changes and no truncates")


class SinkContract:
    """Fixtures to give: `sink`, an empty one; `read`, which reads a target's rows beside it."""

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
        left = {"name": "means nothing", "_unsent": ["name"]}
        sent = [{"id": 2, "name": "B", "_unsent": []}, {"id": 3, "name": None, "_unsent": None}]
        sink.commit(epochs.next(inserts=rows((5, "e")), upserts=[{"id": 1, **left}, {"id": 5, **left}, *sent]))
        assert read("orders") == rows((1, "a"), (2, "B"), (3, None), (4, "d"), (5, "e"))  # type: ignore[arg-type]

    def test_a_change_that_leaves_columns_out_of_a_row_that_is_not_there_is_refused(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        require_partial(sink)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        lost = [{"id": key, "name": None, "_unsent": ["name"]} for key in (1, 8)]
        with pytest.raises(BadData, match=r"'orders'.*no row of the key \(id\).*: \(8\)"):
            sink.commit(epochs.next(upserts=lost))
        assert read("orders") == rows((1, "a"))
        assert sink.committed("orders")["orders"].epoch == 10

    def test_until_the_sink_has_converged_such_a_change_is_left_out(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        """The row was deleted before it was read; its delete is still to come."""
        require_partial(sink)
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        gone = [{"id": key, "name": None, "_unsent": ["name"]} for key in (1, 8)]
        commit = epochs.next(upserts=[*gone, {"id": 3, "name": "c", "_unsent": None}], deletes=[2])
        sink.commit(replace(commit, converging=True))
        assert read("orders") == rows((1, "a"), (3, "c"))

    # Markers, repeats, fences

    def test_before_the_first_commit_no_table_is_past_epoch_0(self, sink: Sink, epochs: Epochs) -> None:
        assert all(marker.epoch == 0 for marker in sink.committed("orders").values())

    def test_case_37_a_commit_whose_reply_was_lost_is_ignored_when_repeated(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        sink.commit(commit)
        sink.commit(commit)
        sink.commit(replace(commit, token=2, only=frozenset({"orders"})))
        assert read("orders") == rows((1, "a"))

    def test_case_37_another_attempt_of_a_committed_epoch_is_refused(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        sink.commit(commit)
        with pytest.raises(StateConflict, match="another attempt"):
            sink.commit(replace(commit, attempt="other"))
        assert read("orders") == rows((1, "a"))

    def test_case_36_a_sink_restored_to_an_older_point_refuses_the_next_epoch(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        epochs.next(inserts=rows((2, "lost with the restore")))
        with pytest.raises(StateConflict, match="the sink was restored"):
            sink.commit(epochs.next(inserts=rows((3, "c"))))
        assert read("orders") == rows((1, "a"))

    def test_case_36_a_catalog_restored_to_an_older_point_is_told(self, sink: Sink, epochs: Epochs) -> None:
        first, second = epochs.next(inserts=rows((1, "a"))), epochs.next(inserts=rows((2, "b")))
        sink.commit(first)
        sink.commit(second)
        with pytest.raises(StateConflict, match="the catalog was restored"):
            sink.commit(replace(second, epoch=25, prev_epoch=10, attempt="again"))

    def test_case_39_an_epoch_that_is_not_greater_is_refused(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        for epoch in (5, 9, 10):
            with pytest.raises(StateConflict):
                sink.commit(replace(epochs.next(inserts=rows((2, "b"))), epoch=epoch, prev_epoch=10))
        assert read("orders") == rows((1, "a"))

    def test_case_38_each_epoch_applies_its_own_files_alone(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))
        failed = epochs.next(deletes=[1])
        with pytest.raises(StateConflict):
            sink.commit(replace(failed, prev_epoch=5))
        sink.commit(failed)
        sink.commit(epochs.next(upserts=rows((1, "new"))))
        assert read("orders") == rows((1, "new"), (2, "b"))

    def test_case_41_a_file_that_a_losing_task_left_beside_the_staged_ones_is_not_applied(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        commit = epochs.next(inserts=rows((1, "a")))
        _written(Path(commit.folder), "orders/lost/0.parquet", rows((2, "lost")), ROW)
        (Path(commit.folder) / "orders/lost/0.parquet").rename(Path(commit.folder) / "orders/inserts/1.parquet")
        sink.commit(commit)
        assert read("orders") == rows((1, "a"))

    def test_case_40_a_fenced_runner_cannot_commit(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        late = epochs.next(inserts=rows((1, "late")))
        sink.fence("orders", 2)
        with pytest.raises(Held, match="took job 'orders' over"):
            sink.commit(late)
        assert read("orders") == []
        assert sink.committed("orders")["orders"] == Marker(0, 2, "")

    def test_a_fence_never_lowers_the_token_and_says_who_is_newer(self, sink: Sink, epochs: Epochs) -> None:
        sink.fence("orders", 5)
        sink.fence("orders", 5)
        with pytest.raises(Held):
            sink.fence("orders", 4)
        assert sink.committed("orders")["orders"].token == 5

    def test_a_fence_leaves_epoch_and_attempt(self, sink: Sink, epochs: Epochs) -> None:
        sink.commit(epochs.next())
        sink.fence("orders", 9)
        assert sink.committed("orders")["orders"] == Marker(10, 9, "a10")

    def test_a_fence_of_one_job_leaves_another_alone(self, sink: Sink, epochs: Epochs) -> None:
        sink.prepare("other", (a_table("items"),), into_existing=False)
        sink.fence("other", 7)
        assert sink.committed("orders")["orders"].token == 1
        sink.commit(epochs.next(inserts=rows((1, "a"))))

    def test_tables_left_out_of_a_recovery_are_left_alone(self, sink: Sink, tmp_path: Path) -> None:
        tables = (a_table("a"), a_table("b"))
        epochs = Epochs(tmp_path / "s", job="two", tables=tables)
        sink.prepare("two", tables, into_existing=False)
        sink.commit(replace(epochs.next(), only=frozenset({"b"})))
        markers = sink.committed("two")
        assert (markers["b"].epoch, getattr(markers.get("a"), "epoch", 0)) == (10, 0)

    def test_all_tables_of_an_epoch_move_together(self, sink: Sink, read: Read, tmp_path: Path) -> None:
        tables = (a_table("a"), a_table("b"))
        epochs = Epochs(tmp_path / "s", job="two", tables=tables)
        sink.prepare("two", tables, into_existing=False)
        sink.commit(epochs.next(inserts=rows((1, "x")), of="b"))
        assert {marker.epoch for marker in sink.committed("two").values()} == {10}
        assert (read("a"), read("b")) == ([], rows((1, "x")))

    # Which catalog has the job

    def test_a_job_is_nobodys_until_a_catalog_takes_it(self, sink: Sink, epochs: Epochs) -> None:
        assert sink.owner("orders") is None
        sink.own("orders", HERE, None)
        assert (sink.owner("orders"), sink.owner("other")) == (HERE, None)

    def test_a_catalog_that_was_moved_is_told_where_it_is_now(self, sink: Sink, epochs: Epochs) -> None:
        sink.own("orders", HERE, None)
        sink.own("orders", replace(HERE, path="/moved"), HERE)
        assert sink.owner("orders") == replace(HERE, path="/moved")

    def test_of_two_catalogs_that_take_a_job_at_once_one_is_refused(self, sink: Sink, epochs: Epochs) -> None:
        sink.own("orders", HERE, None)
        with pytest.raises(Held, match="/here/catalog"):
            sink.own("orders", ELSEWHERE, None)
        assert sink.owner("orders") == HERE
        sink.own("orders", ELSEWHERE, HERE)
        assert sink.owner("orders") == ELSEWHERE

    def test_a_job_that_was_forgotten_is_nobodys_and_its_late_commit_is_refused(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        sink.own("orders", HERE, None)
        late = epochs.next(inserts=rows((1, "late")))
        sink.forget("orders")
        assert sink.owner("orders") is None
        with pytest.raises(StateConflict, match="dropped"):
            sink.commit(late)
        assert read("orders") == []
        assert sink.saved("orders") is None

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

    # What is kept for a lost catalog

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

    def test_a_sink_that_is_not_there_yet_knows_nothing(self, sink: Sink) -> None:
        sink.fence("orders", 3)
        sink.forget("orders")
        assert sink.committed("orders") == {}
