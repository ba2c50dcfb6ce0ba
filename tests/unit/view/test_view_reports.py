"""What `plan` and `verify` say."""

import json
from dataclasses import replace

import pytest

from backfill_cli.errors import Hint, VerifyMismatch, command
from backfill_cli.model.reports import PlannedDerived, PlannedTable, PlanReport, ReadByDerived, Refusal
from backfill_cli.model.verify import DifferentRange, DifferentRow, Fix, TableFix, TableVerdict, VerifyReport
from backfill_cli.view.reports import plan_text, show_plan
from backfill_cli.view.verify import fix_lines, show_verify, verify_text

TABLE = PlannedTable(
    "orders", "main.orders", ("id",), 20, 200_000, 4 << 20, (("id", "BIGINT"), ("status", "VARCHAR"))
)
PLAN = PlanReport(
    job="orders",
    strategy="snapshot",
    why="the snapshot can be pinned",
    tables=(
        TABLE,
        PlannedTable("lines", "lines", ("id",), 1, None, 100, rate=500.0),
        PlannedTable("l", "l", ("id",), 1, 9_000, 100, estimated=True),
    ),
    position="0001.json",
    pending_epochs=3,
    pending_bytes=3000,
    converging_until="0007.json",
    retention="the change files until they are applied",
    constraints_hold=False,
    constraints_why="the tables have no shared epoch",
    estimate_s=(40.0, 90.0),
    estimated_by="as job 'orders' took here",
    then=command("start --config job.toml"),
    refused=(Refusal("sink table orders has rows", Hint.of("--into-existing")),),
    warnings=("the staging folder is on another disk",),
    side_tables=(
        PlannedTable("l.quarantine", "_backfill_quarantine_l", ("file",), 0, 0, 0, (("file", "string"),)),
    ),
)

SAME = TableVerdict("orders", "orders", True, 200_000, 200_000)
DIFFERENT = TableVerdict(
    "lines",
    "main.lines",
    False,
    10,
    9,
    4,
    (DifferentRange("id 0 to 9", 10, 9, ("status",)),),
    (
        DifferentRow((("id", "3"),), None, "1 row", "0 rows"),
        DifferentRow((("id", "4"),), "status", "A", None),
    ),
    missing=1,
    changed=1,
)


def test_a_plan_without_a_change_side_has_no_change_log() -> None:
    assert "change log  none: the config names no changes\n" in plan_text(replace(PLAN, follows=False))


def test_a_plan_of_a_job_that_exists_says_so_first() -> None:
    said = "job 'orders' already exists (done, epoch 5): start continues it"
    first, second, *rest = plan_text(replace(PLAN, exists=(said,))).split("\n")
    assert (first, second) == (said, "what follows is what a new job would do")
    assert rest == ["", *plan_text(PLAN).split("\n")]


def test_a_plan_tells_all_that_it_knows() -> None:
    text = plan_text(PLAN)
    for fact in (
        "snapshot: the snapshot can be pinned",
        "from 0001.json; 3 upstream commits waiting (2.9 KB)",
        "about 40 s to 1 m 30 s, as job 'orders' took here",
        "from 0007.json of the change log",
        "do not hold at every commit: the tables have no shared epoch",
        "table orders → main.orders: 20 parts, 200,000 rows, 4.0 MB; key id",
        "  status  VARCHAR",
        "table lines: 1 part, rows unknown until read, 100 B; key id; at most 500 rows/s\n",
        "table l: 1 part, about 9,000 rows, 100 B; key id\n",
        "\n\ntable _backfill_quarantine_l: for rows that cannot be read\n  file  string\n\n",
        "start would refuse: sink table orders has rows. Try: --into-existing",
        "warning: the staging folder is on another disk",
    ):
        assert fact in text
    assert text.splitlines()[-1] == "1 problem"


def test_a_plan_ends_with_what_to_type() -> None:
    ready = replace(PLAN, refused=())
    assert plan_text(ready).splitlines()[-1] == "ready: backfill start --config job.toml"
    running = replace(ready, running=True, then=command("status orders"))
    assert plan_text(running).splitlines()[-1] == "running already: backfill status orders"
    unknown = replace(PLAN, estimate_s=None, estimated_by="number of rows not known")
    assert "time        N/A: number of rows not known\n" in plan_text(unknown)


def test_a_plan_as_json_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    show_plan(PLAN, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["tables"][0]["target"], told["estimate_s"]) == (2, "main.orders", [40.0, 90.0])


def test_equal_sides_are_told_and_raise_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_verify(VerifyReport("orders", 7, (SAME,), 2.12), as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "job orders, commit 7 (1970-01-01 00:00:00 UTC): upstream and sink are equal (took 2.1 s)",
        "table orders: equal, 200,000 rows compared",
        "the upstream was read again, as the job reads it: a value that backfill misreads is equal on both sides",
    ]


def test_keys_that_were_not_compared_are_in_the_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    show_verify(VerifyReport("orders", 7, (SAME,), 2.1, not_compared={"orders": 14_690}), as_json=False)
    said = "equal, 14,690 keys that changed meanwhile were not compared (took 2.1 s)"
    assert capsys.readouterr().out.splitlines()[0].endswith(said)


def test_different_rows_are_named_and_the_exit_code_is_3(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VerifyMismatch, match=r"main\.lines differs from its upstream at commit 7") as caught:
        show_verify(VerifyReport("orders", 7, (SAME, DIFFERENT), 2.0), as_json=False)
    assert caught.value.exit_code == 3
    out = capsys.readouterr().out
    for fact in (
        "table lines → main.lines: different, 10 rows upstream, 9 in the sink: 1 missing, 0 extra, 1 changed\n",
        "  id 0 to 9: 10 rows upstream, 9 in the sink; columns status",
        "  id = '3': 1 row upstream, 0 rows in the sink",
        "  id = '4': status is 'A' upstream, NULL in the sink",
    ):
        assert fact in out


def test_a_sink_that_converges_may_be_verified_later(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(VerifyMismatch) as caught:
        show_verify(VerifyReport("orders", 7, (DIFFERENT,), 2.0, converging=True), as_json=True)
    assert "converging" in str(caught.value.hint)
    assert json.loads(capsys.readouterr().out)["equal"] is False


def test_a_plan_of_a_log_read_by_offsets_counts_records_which_have_no_size() -> None:
    for rows, told in ((21, "at most 21 records"), (1, "at most 1 record"), (None, "rows unknown until read")):
        table = PlannedTable("orders", "orders", ("id",), 4, rows, 0)
        text = plan_text(replace(PLAN, strategy="source", tables=(table,)))
        assert f"table orders: 4 parts, {told}; key id" in text


def test_a_plan_draws_how_changes_reach_the_rows_of_a_derived_table() -> None:
    reads = (
        ReadByDerived("public.orders", "o", ("customer_id",)),
        ReadByDerived("rates", "r", ("day", "currency")),
        ReadByDerived("public.customers", "c", ("id",)),
    )
    columns = (("country", "VARCHAR"), ("revenue", "DOUBLE"))
    revenue = PlannedDerived(
        "revenue",
        "mart.revenue",
        ("country",),
        columns,
        reads,
        ("country",),
        ("revenue: a floating-point number",),
    )
    total = PlannedDerived("total", "total", (), (("n", "BIGINT"),), (ReadByDerived("lines", "lines", ()),))
    told = plan_text(replace(PLAN, derived=(revenue, total))).split("\n\nderived ")[1:]
    assert told[0].splitlines() == [
        "table revenue → mart.revenue: a SELECT; key country",
        "  country  VARCHAR",
        "  revenue  DOUBLE",
        "  a change reaches its rows:",
        "    public.orders     o.customer_id ─────┐",
        "    rates             r.day, r.currency ─┤",
        "    public.customers  c.id ──────────────┴─→ country",
        "  note: revenue: a floating-point number",
    ]
    assert told[1].splitlines()[:4] == [
        "table total: a SELECT; one row",
        "  n  BIGINT",
        "  a change reaches its rows:",
        "    lines  all of lines ─→ its one row",
    ]


def test_the_first_line_of_a_verify_says_of_how_many_derived_tables_it_is() -> None:
    equal = TableVerdict("total", "total", True, 1, 1, derived=True)
    more = replace(equal, table="more")
    empty = replace(equal, table="later", filled=False)
    other = replace(equal, table="revenue", equal=False)
    bad = replace(SAME, equal=False)
    for tables, said in (
        ((SAME, equal, empty), "upstream and sink are equal"),
        ((bad, other), "upstream and sink differ"),
        ((SAME, equal, other, empty), "derived table revenue differs from its SELECT"),
        ((SAME, other, replace(other, table="b")), "2 derived tables differ from their SELECTs"),
        ((equal, empty), "derived table total is equal to its SELECT"),
        ((equal, more), "2 derived tables are equal to their SELECTs"),
        ((empty,), "nothing was compared"),
    ):
        first = verify_text(VerifyReport("orders", 7, tables, 1.0)).splitlines()[0]
        assert first.endswith(f": {said} (took 1 s)")


def test_verify_tells_of_a_derived_table_beside_its_select(capsys: pytest.CaptureFixture[str]) -> None:
    named = (
        DifferentRow((("country", None), ("day", "1")), "n", "2", "1"),
        DifferentRow((), None, "1 row", "0 rows"),
    )
    equal = TableVerdict("total", "total", True, 1, 1, derived=True)
    empty = TableVerdict("later", "later", True, 0, 0, derived=True, filled=False)
    other = TableVerdict("revenue", "mart.revenue", False, 5, 4, rows=named, missing=1, changed=1, derived=True)
    gone = TableVerdict("days", "days", False, 0, 0, derived=True, gone=True)
    with pytest.raises(VerifyMismatch, match=r"mart\.revenue, days differ from their SELECTs at commit 7"):
        show_verify(VerifyReport("orders", 7, (SAME, other, gone), 1.0, fixable=True), False)
    said = "derived table days: gone: somebody has dropped its table; its SELECT has 0 rows"
    assert said in capsys.readouterr().out.splitlines()
    assert "the upstream was read" not in verify_text(VerifyReport("orders", 7, (equal, other), 1.0))
    both = r"main\.lines differs from its upstream, and mart\.revenue differs from its SELECT at commit 7"
    with pytest.raises(VerifyMismatch, match=both):
        show_verify(VerifyReport("orders", 7, (SAME, DIFFERENT, other), 1.0), False)
    assert "the upstream was read again" in capsys.readouterr().out
    fixed = VerifyReport("orders", 7, (gone,), 1.0, fix=Fix((TableFix("days", "days", 0, 0, 0, gone=True),), 8))
    show_fix = fix_lines(fixed, "was fixed, as commit 8")
    assert show_fix == ["table days was fixed, as commit 8: filled anew, as somebody dropped it"]
    with pytest.raises(VerifyMismatch, match=r"mart\.revenue differs from its SELECT at commit"):
        show_verify(
            VerifyReport("orders", 1_763_692_800_123, (SAME, equal, empty, other), 1.0, fixable=True), False
        )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith(": derived table revenue differs from its SELECT (took 1 s)")
    assert lines[2:7] == [
        "derived table total: equal to its SELECT, 1 row compared",
        "derived table later: not filled yet, so it was not compared",
        "derived table revenue → mart.revenue: different, 5 rows by its SELECT, 4 in the table: "
        "1 missing, 0 extra, 1 changed",
        "  country = NULL, day = '1': n is '2' by its SELECT, '1' in the table",
        "  its row: 1 row by its SELECT, 0 rows in the table",
    ]
