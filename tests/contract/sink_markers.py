"""What every sink must do with markers: repeats, fences, recoveries, and the catalog that a job belongs to."""

from dataclasses import replace
from pathlib import Path

import pytest
from sink_epochs import ROW, Epochs, Read, a_table, rows, written

from backfill_cli.contracts import Sink
from backfill_cli.errors import Held, StateConflict
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.plan import Staged
from backfill_cli.model.split import SplitProgress

HERE = Owner("id-1", "host", "/here/catalog.duckdb")
ELSEWHERE = Owner("id-2", "host", "/elsewhere/catalog.duckdb")


class MarkersContract:
    """Part of `SinkContract`, which provides the fixtures."""

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
        written(Path(commit.folder), "orders/lost/0.parquet", rows((2, "lost")), ROW)
        (Path(commit.folder) / "orders/lost/0.parquet").rename(Path(commit.folder) / "orders/inserts/1.parquet")
        sink.commit(commit)
        assert read("orders") == rows((1, "a"))

    def test_case_40_a_fenced_runner_cannot_commit(self, sink: Sink, read: Read, epochs: Epochs) -> None:
        late = epochs.next(inserts=rows((1, "late")))
        sink.fence("orders", 2)
        with pytest.raises(Held, match="job 'orders' was taken over by another runner"):
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

    def test_a_side_table_that_came_later_joins_the_job_at_its_epoch(
        self, sink: Sink, read: Read, epochs: Epochs
    ) -> None:
        """A job that was created without one: see the engine's recovery."""
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        last = epochs.next(upserts=rows((2, "b")), splits={("orders", "0"): SplitProgress(rows=7)})
        sink.commit(last)
        sink.fence("orders", 2)
        aside = a_table("orders.quarantine", "_backfill_quarantine_orders", side=True)
        sink.prepare("orders", (*epochs.tables, aside), into_existing=True)
        joined = replace(
            last, prev_epoch=0, token=2, tables=(aside,), staged=Staged(last.attempt), folder="", unique=()
        )
        for _ in range(2):
            sink.commit(joined)
        same = Marker(last.epoch, 2, last.attempt)
        assert sink.committed("orders") == {"orders": same, "orders.quarantine": same}
        found = sink.saved("orders")
        assert found is not None
        assert found.checkpoint.splits == last.saved.checkpoint.splits
        epochs.token, epochs.tables = 2, (*epochs.tables, aside)
        sink.commit(epochs.next(inserts=rows((9, "unreadable")), of=aside.name))
        assert read("orders") == rows((1, "a"), (2, "b"))
        assert read("_backfill_quarantine_orders") == rows((9, "unreadable"))

    # Which catalog owns the job

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
