"""Keys that a source checks late, in Debezium's files: the source's rows, or refused by the key; nothing else."""

import json
import random
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from files_values import FAILURES, block, failure, opened, read
from hint_typed import typed
from oracle.inputs import SEED, TIMES
from oracle.late_keys import COLUMNS, Row, Source, shift

from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLE = {"id": pa.int64(), "code": pa.string(), "state": pa.string(), "n": pa.int32(), "note": pa.string()}
COMMON = {"state": "new", "n": 1, "note": None}
LATE = "one transaction put a row at this key and then removed another row from it; key"


def text(event: dict[str, Any], with_block: bool) -> str:
    whole = {"schema": block(COLUMNS), "payload": event} if with_block else event
    return json.dumps(whole, separators=(",", ":"))


def write(root: Path, files: Sequence[Sequence[str]], **more: Any) -> Any:
    root.mkdir(exist_ok=True)
    upstream = opened(root, TABLE, {"format": "debezium", **more})
    for number, lines in enumerate(files):
        (root / "changes" / f"{number}.json").write_text("\n".join(lines) + "\n")
    return upstream


def followed(upstream: Any, spark: "SparkSession", begun: Sequence[Row] = ()) -> dict[int, Row]:
    """The table that all changes make of these rows, in one window."""
    found = {row["id"]: dict(row) for row in begun}
    for one in read(upstream, spark, "_backfill_op", *TABLE):
        found.pop(one["id"], None)
        if one.pop("_backfill_op") == "U":
            found[one["id"]] = one
    return found


def held(*sources: Source) -> dict[int, Row]:
    return {row["id"]: row for source in sources for row in source.rows}


@pytest.mark.parametrize(
    ("identity", "with_block", "system"),
    [
        ("default", True, "postgresql"),
        ("default", False, "postgresql"),
        ("index", False, "postgresql"),
        ("full", True, "oracle"),
        ("changing", True, "postgresql"),
        ("changing", False, "postgresql"),
    ],
)
def test_a_key_that_is_checked_row_by_row_is_never_refused(
    tmp_path: Path, spark: "SparkSession", identity: str, with_block: bool, system: str
) -> None:
    """With parts of transactions that are delivered again, some across files, and under changing identities."""
    sources = [
        Source(random.Random(SEED + n), identity, False, 100 * n, system=system) for n in range(int(30 * TIMES))
    ]
    for source in sources:
        source.run(8)
    lines = [text(event, with_block) for event in chain.from_iterable(one.delivered() for one in sources)]
    half = len(lines) // 2
    assert followed(write(tmp_path, [lines[:half], lines[half:]]), spark) == held(*sources)


def test_a_key_that_is_checked_late_ends_exact_or_refused(tmp_path: Path, spark: "SparkSession") -> None:
    refused = []
    for number in range(int(8 * TIMES)):
        system = "oracle" if number % 8 > 3 else "postgresql"
        with_block = number % 2 == 0
        source = Source(random.Random(SEED + number), "full", True, 100 * number, system=system, told=with_block)
        source.run(3)
        lines = [text(event, with_block) for event in source.delivered()]
        try:
            assert followed(write(tmp_path / str(number), [lines]), spark) == held(source)
        except FAILURES as exc:
            refused.append(str(exc))
    assert refused
    assert all(LATE in one for one in refused)


def test_an_update_that_moves_all_keys_by_one_is_refused_until_the_key_is_checked_row_by_row(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    source = shift(10)
    refused = failure(write(tmp_path / "late", [[text(event, False) for event in source.events]]), spark)
    assert refused.message == f"0.json: line 13: {LATE}: 2"
    with typed(refused) as hint:
        hint.says("NOT DEFERRABLE")
        hint.says("from a new snapshot, and a log that begins after it")
        after = Source(random.Random(SEED), "full", False, 0, [dict(row) for row in source.rows])
        after.run(3)
        upstream = write(tmp_path / "early", [[text(event, False) for event in after.events]])
        assert followed(upstream, spark, source.rows) == held(after)


def inserts(first: int, count: int) -> list[str]:
    rows = [{"id": first + n, "code": f"x{n}", "state": "new", "n": 1, "note": None} for n in range(count)]
    place = {"db": "d", "schema": "public", "table": "t", "ts_ms": 5}
    return [
        text(
            {"op": "c", "before": None, "after": row, "source": {**place, "lsn": row["id"], "txId": row["id"]}},
            False,
        )
        for row in rows
    ]


def test_a_late_key_is_seen_wherever_its_transaction_stands(tmp_path: Path, spark: "SparkSession") -> None:
    """No line of the first and the last thousand has an old row."""
    late = [text(event, False) for event in shift(10).events]
    refused = failure(write(tmp_path, [[*inserts(5_000, 1_001), *late, *inserts(9_000, 1_001)]]), spark)
    assert f"{LATE}: 2" in refused.message


def test_a_column_that_a_transaction_adds_with_a_default_says_nothing_of_the_key(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """UPDATE; ALTER TABLE … ADD COLUMN code TEXT DEFAULT 'EU'; UPDATE: of each of two rows, by one transaction."""
    source = Source(random.Random(SEED), "full", False, 0)
    for code in (None, "EU"):
        for key, new in ((1, "US"), (2, "DE")):
            row = {"id": key, "code": code, "state": "new", "n": 1, "note": None}
            source._log("u", row, {**row, "code": code and new, "n": 2})
    source._log("u", {"id": 3, **COMMON, "code": "FR"}, {"id": 3, **COMMON, "code": "IT"})
    for event in source.events:
        event["source"]["txId"] = 9
        for image in (event["before"], event["after"]):
            if image["code"] is None:
                del image["code"]
    told = {"format": "debezium", "columns": "code STRING"}
    upstream = opened(tmp_path, {name: kind for name, kind in TABLE.items() if name != "code"}, told)
    lines = (text(event, False) for event in source.events)
    (tmp_path / "changes" / "0.json").write_text("\n".join(lines) + "\n")
    found = {key: row["code"] for key, row in followed(upstream, spark).items()}
    assert found == {1: "US", 2: "DE", 3: "IT"}


def second_of(root: Path, spark: "SparkSession", files: Sequence[Sequence[str]]) -> "DataFrame":
    """The changes of the second of two files, once the first one is applied."""
    upstream = write(root, files)
    pin = upstream.pin()
    first, second = (Position.of(dict(one.cursors)) for one in upstream.observe(pin.position, False).pending)
    found: DataFrame = upstream.changes(spark, "t", first, second, dict(pin.schema)["t"])
    return found.select("_backfill_op", "id").orderBy("_backfill_seq")


def test_a_transaction_in_two_files_that_are_applied_one_by_one_is_refused(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    source = shift(10)
    lines = [text(event, False) for event in source.events]
    with pytest.raises(FAILURES, match=f"{LATE}: 2"):  # the row that is put at 2 is the last of the first file
        second_of(tmp_path / "late", spark, [lines[:12], lines[12:]]).collect()
    row = {"id": 50, "code": "a", "state": "new", "n": 1, "note": None}
    for op, old, new in (("c", None, row), ("d", row, None)):
        source._log(op, old, new)
        source.events[-1]["source"]["txId"] = 99
    more = [text(event, False) for event in source.events[-2:]]
    rows = second_of(tmp_path / "none", spark, [lines[:12], more]).collect()
    assert [tuple(one) for one in rows] == [("U", 50), ("D", 50)], (
        "the changes of the first file are not among them"
    )


def test_tables_that_are_read_as_one_and_pass_a_row_on_by_insert_and_delete_are_refused(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """The delete from the one would remove the row that the other has now."""
    source = Source(random.Random(SEED), "default", False, 0)
    row = {"id": 4, "code": "a", "state": "new", "n": 1, "note": None}
    for op, old, new, table in (
        ("c", None, row, "t_2025"),
        ("c", None, row, "t_2026"),
        ("d", row, None, "t_2025"),
    ):
        source._log(op, old, new)
        source.events[-1]["source"] |= {"txId": 9 if len(source.events) > 1 else 8, "table": table}
    lines = [text(event, False) for event in source.events]
    refused = failure(write(tmp_path, [lines], tables=["public.t*"]), spark)
    assert f"{LATE}: 4" in refused.message
    assert "in tables that are read as one, a key of which one row exists" in str(refused.hint)


@pytest.mark.parametrize(("note", "other", "is_seen"), [(None, "x", True), ("x", None, False)])
def test_an_exchange_of_keys_is_seen_where_the_row_that_was_put_has_a_null(
    tmp_path: Path, spark: "SparkSession", note: str | None, other: str | None, is_seen: bool
) -> None:
    events = []
    for at, (op, key, value) in enumerate((("d", 1, note), ("c", 2, note), ("d", 2, other), ("c", 1, other))):
        row = {"id": key, "code": "c", **COMMON, "note": value}
        source = {"connector": "postgresql", "db": "d", "schema": "public", "table": "t", "ts_ms": 5}
        images = {"before": row if op == "d" else None, "after": None if op == "d" else row}
        events.append({"op": op, **images, "source": {**source, "txId": 9, "lsn": 10 + at}})
    upstream = write(tmp_path, [[text(event, True) for event in events]])
    if is_seen:
        assert LATE in str(failure(upstream, spark))
    else:
        followed(upstream, spark)
