"""Rows written, by table and phase."""

from backfill_cli.model.job import Phase
from backfill_cli.model.plan import StagedTable
from backfill_cli.model.written import written


def test_rows_are_counted_where_there_are_some_and_what_was_counted_stays() -> None:
    before = {"a": {"snapshot": 5}, "b": {"snapshot": 1}}
    staged = {"a": StagedTable(rows=1, changed=2, deleted=3), "c": StagedTable(), "d": StagedTable(changed=4)}
    after = written(before, staged, Phase.UPSTREAM)
    assert after == {"a": {"snapshot": 5, "upstream": 6}, "b": {"snapshot": 1}, "d": {"upstream": 4}}
    assert before == {"a": {"snapshot": 5}, "b": {"snapshot": 1}}
    assert written(after, {"a": StagedTable(rows=1)}, Phase.UPSTREAM)["a"] == {"snapshot": 5, "upstream": 7}
