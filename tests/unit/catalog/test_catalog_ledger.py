"""The ledger: every epoch of late, and no sum lost when old ones are folded by the hour."""

from dataclasses import fields, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from catalog_builders import Clock, record, with_job
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.catalog import Catalog, ledger
from backfill_cli.catalog.store import Store
from backfill_cli.model.checkpoint import EpochRecord, Totals

HOUR = ledger.HOUR_MS


def write(path: Path, *lines: EpochRecord) -> None:
    with Store(path).writing() as db:
        for line in lines:
            ledger.record(db, "orders", line)


def hours(path: Path) -> dict[int, dict[str, int | None]]:
    with Store(path).reading() as db:
        found = db.execute("SELECT * FROM ledger_hours WHERE job = 'orders' ORDER BY hour_ms")
        names = [column[0] for column in found.description or ()]
        return {row[1]: dict(zip(names[2:], row[2:], strict=True)) for row in found.fetchall()}


def test_the_newest_lines_come_oldest_first(catalog: Catalog, path: Path) -> None:
    write(path, *(record(epoch) for epoch in (5, 6, 9)))
    assert catalog.ledger("orders", 2) == (record(6), record(9))
    assert catalog.ledger("orders", 0) == ()


def test_a_line_comes_back_exactly(catalog: Catalog, path: Path) -> None:
    full = EpochRecord(9, 8, record(9).phase, 10, 1, 2, 3, 4, 5, 6, 7, 8, "pause, throttle", 9, 10, 11)
    write(path, full)
    assert catalog.ledger("orders", 1) == (full,)


def test_every_field_of_a_line_has_its_column(catalog: Catalog, path: Path) -> None:
    with Store(path).reading() as db:
        columns = [row[0] for row in db.execute("SELECT column_name FROM (DESCRIBE ledger)").fetchall()]
    assert columns == ["job", *(field.name for field in fields(EpochRecord))]


def test_old_lines_are_folded_by_the_hour(catalog: Catalog, path: Path) -> None:
    lines = [replace(record(n * HOUR // 2), lag_ms=n or None, pending_epochs=n, stage_ms=10) for n in range(7)]
    with patch.object(ledger, "KEPT", 2), patch.object(ledger, "FOLD_AT", 4):
        write(path, *lines, replace(record(4 * HOUR, "pause")))
    assert [line.epoch for line in catalog.ledger("orders", 99)] == [3 * HOUR, 4 * HOUR]
    assert hours(path) == {
        hour * HOUR: {
            "epochs": epochs,
            "snapshot_rows": 0,
            "changes_read": 0,
            "rows_written": epochs,
            "upstream_epochs": 0,
            "stage_ms": 10 * epochs,
            "commit_ms": 0,
            "max_lag_ms": lag,
            "max_pending_epochs": lag,
            "commands": 0,
            "rows_inserted": 0,
            "rows_upserted": 0,
            "rows_deleted": 0,
        }
        for hour, epochs, lag in ((0, 2, 1), (1, 2, 3), (2, 2, 5))
    }


def test_an_hour_without_a_known_lag_has_none(catalog: Catalog, path: Path) -> None:
    with patch.object(ledger, "KEPT", 1), patch.object(ledger, "FOLD_AT", 1):
        write(path, record(1, "stop"), record(2))
    assert (hours(path)[0]["max_lag_ms"], hours(path)[0]["commands"]) == (None, 1)


def test_ten_thousand_epochs_are_kept_as_they_are(catalog: Catalog, path: Path) -> None:
    """The lines go in at once: what is tried here is the fold at its real size."""
    with Store(path).writing() as db:
        db.execute(
            """INSERT INTO ledger
               SELECT 'orders', range, 0, 'upstream', range * 60000, 0, 0, 1, 0, 0, 0, NULL, 0, '', 1, 0, 0
               FROM range(1, 10501)"""
        )
    write(path, record(10_501))
    assert len(catalog.ledger("orders", 99_999)) == 10_000
    assert sum(hour["epochs"] or 0 for hour in hours(path).values()) == 501


def test_totals_are_of_the_whole_life_folded_or_not(
    catalog: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "KEPT", 3)
    monkeypatch.setattr(ledger, "FOLD_AT", 4)
    with Store(path).writing() as db:
        assert ledger.totals(db, "orders") == Totals(0, 0, 0, 0)
        for n in range(1, 10):
            line = replace(record(n * HOUR // 2), snapshot_rows=n, changes_read=10 * n, rows_written=100 * n)
            ledger.record(db, "orders", replace(line, stage_ms=10, commit_ms=n))
        alone = replace(record(10 * HOUR, "pause"), rows_written=0, stage_ms=0)  # a command, no commit
        ledger.record(db, "orders", alone)
        assert ledger.totals(db, "orders") == Totals(10, 45, 450, 4_500, 9, 90, 45)


def test_rows_by_kind_are_summed_only_where_every_line_has_them(
    catalog: Catalog, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "KEPT", 2)
    monkeypatch.setattr(ledger, "FOLD_AT", 3)
    told = replace(record(1), rows_written=9, rows_inserted=2, rows_upserted=3, rows_deleted=4)
    write(path, *(replace(told, epoch=n, committed_ms=n) for n in range(1, 6)))
    totals = catalog.totals("orders")
    assert (totals.rows_inserted, totals.rows_upserted, totals.rows_deleted) == (10, 15, 20)
    untold = replace(told, epoch=6, rows_inserted=None, rows_upserted=None, rows_deleted=None)
    write(path, untold, *(replace(told, epoch=n) for n in range(7, 12)))
    totals = catalog.totals("orders")
    assert (totals.rows_written, totals.rows_inserted, totals.rows_deleted) == (99, None, None)
    assert totals.since(Totals()).rows_upserted is None


@pytest.mark.seconds
@given(st.lists(st.tuples(st.integers(1, HOUR), st.integers(0, 9)), min_size=1, max_size=30), st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_folding_loses_no_row_and_no_epoch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], kept: int
) -> None:
    path = tmp_path_factory.mktemp("ledger") / "catalog.duckdb"
    catalog = with_job(path, Clock())
    epoch = 0
    with patch.object(ledger, "KEPT", kept), patch.object(ledger, "FOLD_AT", kept + 2):
        for step, rows in steps:
            epoch += step
            write(path, replace(record(epoch), rows_written=rows))
    lines, folded = catalog.ledger("orders", 99), hours(path).values()
    assert len(lines) >= min(kept, len(steps))
    assert len(lines) + sum(hour["epochs"] or 0 for hour in folded) == len(steps)
    total = sum(line.rows_written for line in lines) + sum(hour["rows_written"] or 0 for hour in folded)
    assert total == sum(rows for _, rows in steps)
