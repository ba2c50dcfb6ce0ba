"""What `verify` found last: of each table one row."""

from dataclasses import replace
from pathlib import Path

from catalog_builders import Clock, with_job

from backfill_cli.catalog.store import Store
from backfill_cli.catalog.verified import Verified
from backfill_cli.model.verify import TableVerdict, VerifyReport
from backfill_cli.view.model import spell_verified, verified_view

SAME = TableVerdict("orders", "orders", True, 10, 10)
OTHER = TableVerdict("lines", "lines", False, 10, 11, missing=1, extra=2, changed=3)


def test_what_a_verify_leaves_out_is_as_an_earlier_one_found_it(path: Path) -> None:
    clock = Clock()
    catalog = with_job(path, clock)
    assert catalog.job("orders").verified == ()
    catalog.verified.note(VerifyReport("orders", 5, (SAME, OTHER), 1.0))
    first = clock()
    assert catalog.job("orders").verified == (
        Verified("lines", 5, first, None, 1, 2, 3, False, 0, 11),
        Verified("orders", 5, first, None, 0, 0, 0, True, 0, 10),
    )
    clock.ms += 1_000
    others = ("lines", "refunds")
    catalog.verified.note(VerifyReport("orders", 6, (SAME,), 1.0, False, False, {"orders": 4}, 0.01, others))
    assert catalog.jobs()[0].verified == (
        Verified("lines", 5, first, None, 1, 2, 3, False, 0, 11),
        Verified("orders", 6, clock(), 0.01, 0, 0, 0, True, 4, 10),
        Verified("refunds", 0, 0, None, 0, 0, 0, False),
    )
    shown = verified_view(catalog.job("orders").verified, None)
    assert shown is not None
    assert (shown.equal, shown.tables) == (True, ("orders",))
    assert (shown.left_out, shown.different_before) == (others, ("lines",))
    assert spell_verified(shown).endswith("; orders alone; different before, and not compared since: lines")
    clock.ms += 1_000
    catalog.verified.note(VerifyReport("orders", 7, (SAME, replace(OTHER, equal=True)), 1.0))
    assert [one.table for one in catalog.job("orders").verified] == ["lines", "orders"], "refunds left the job"
    shown = verified_view(catalog.job("orders").verified, None)
    assert shown is not None
    assert (shown.left_out, shown.different_before) == ((), ())


def test_of_a_derived_table_that_was_not_compared_nothing_is_recorded(path: Path) -> None:
    """Such a report was recorded as equal, and `status` said so."""
    clock = Clock()
    catalog = with_job(path, clock)
    catalog.verified.note(VerifyReport("orders", 5, (SAME, OTHER), 1.0))
    before = catalog.job("orders").verified
    clock.ms += 1_000
    waits = TableVerdict("who", "who", True, 0, 0, derived=True, filled=False)
    catalog.verified.note(VerifyReport("orders", 6, (waits,), 1.0, left_out=("lines", "orders")))
    assert catalog.job("orders").verified == before
    catalog.verified.note(VerifyReport("orders", 6, (SAME, waits), 1.0))
    assert [one.table for one in catalog.job("orders").verified] == ["orders"]


def test_a_job_that_is_dropped_leaves_nothing_of_it(path: Path) -> None:
    catalog = with_job(path, Clock())
    catalog.verified.note(VerifyReport("orders", 5, (SAME,), 1.0))
    catalog.drop("orders")
    with Store(path).reading() as db:
        assert db.execute("SELECT count(*) FROM verified").fetchall() == [(0,)]
