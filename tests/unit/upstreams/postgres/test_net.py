"""A table's changes by key, against the same changes applied one by one."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.cdc.files import LogTable
from backfill_cli.cdc.net import UNSENT, NeedsAll, Row
from backfill_cli.errors import BadData
from backfill_cli.model.pushdown import Wanted
from backfill_cli.upstreams.postgres.take import SlotTable
from backfill_cli.upstreams.postgres.types import Column


def column(name: str, toasts: bool = False) -> Column:
    return Column(name, 25, -1, "text", False, toasts, "", 25, -1, "b", 0, -1, ",")


TABLE = LogTable("public.t", 1, (column("v"), column("id"), column("big", True)), ("id",))


def net(*key: str) -> SlotTable:
    table = SlotTable(LogTable("public.t", 1, TABLE.columns, key or ("id",)))
    table.identify(frozenset({"id", "v", "big"}))
    return table


def rows(table: SlotTable) -> dict[Any, Row | None]:
    return {key: row for key, (_, _, row) in table.entries.items()}


def test_the_latest_row_of_a_key_counts() -> None:
    table = net()
    table.insert([b"1", b"k", b"b"], 1, 10)
    table.update([b"2", b"k", b"b"], False, None, False, 2, 20)
    assert table.entries == {b"k": (2, 20, [b"2", b"k", b"b"])}


def test_a_delete_of_a_row_of_the_window_stays_a_delete() -> None:
    table = net()
    table.insert([b"1", b"k", b"b"], 1, 10)
    table.delete([None, b"k", None], 2, 20)
    assert table.entries == {b"k": (2, 20, None)}


def test_a_key_change_is_a_delete_and_a_row() -> None:
    table = net()
    assert table.update([b"1", b"new", b"b"], False, [None, b"old", None], False, 1, 10)
    assert table.entries == {b"old": (1, 10, None), b"new": (2, 10, [b"1", b"new", b"b"])}


def test_an_old_row_with_the_same_key_is_no_key_change() -> None:
    table = net()
    assert not table.update([b"1", b"k", b"b"], False, [b"0", b"k", b"b"], True, 1, 10)
    assert rows(table) == {b"k": [b"1", b"k", b"b"]}


def test_an_unsent_key_is_that_of_the_old_row() -> None:
    table = net("id", "big")
    assert table.update([b"1", b"new", UNSENT], True, [None, b"old", b"long"], False, 1, 10)
    assert rows(table) == {(b"old", b"long"): None, (b"new", b"long"): [b"1", b"new", b"long"]}


def test_nothing_but_the_key_is_taken_from_an_old_key() -> None:
    """Its other columns are NULL there."""
    table = net()
    table.update([UNSENT, b"k", UNSENT], True, [None, b"k", None], False, 1, 10)
    assert rows(table) == {b"k": [UNSENT, b"k", UNSENT]}


def test_unsent_values_are_those_of_the_whole_old_row() -> None:
    table = net()
    table.update([b"1", b"new", UNSENT], True, [b"0", b"old", b"long"], True, 1, 10)
    assert rows(table) == {b"old": None, b"new": [b"1", b"new", b"long"]}
    assert table.left_out() == ()


def test_partial_rows_of_a_key_are_merged_column_by_column() -> None:
    table = net()
    table.update([UNSENT, b"k", b"long"], True, None, False, 1, 10)
    table.update([b"1", b"k", UNSENT], True, None, False, 2, 10)
    assert rows(table) == {b"k": [b"1", b"k", b"long"]}
    table.update([UNSENT, b"j", UNSENT], True, None, False, 3, 10)
    assert table.left_out() == ("v", "big")


def test_a_row_that_moved_without_its_value_is_refused_with_all_that_is_missing() -> None:
    table = net()
    table.update([UNSENT, b"new", UNSENT], True, [None, b"old", None], False, 1, 10)
    with pytest.raises(BadData, match=r"'public\.t': .* new key id = new,.* value of 'v', 'big'"):
        table.left_out()


def test_a_lost_value_moves_on_and_is_found_again() -> None:
    table = net()
    table.update([b"1", b"new", UNSENT], True, [None, b"old", None], False, 1, 10)
    table.update([b"1", b"newer", UNSENT], True, [None, b"new", None], False, 3, 10)
    with pytest.raises(BadData, match="id = newer"):
        table.left_out()
    table.update([b"1", b"newer", b"long"], False, None, False, 5, 10)
    assert table.left_out() == ()


def test_a_row_that_moves_after_rows_were_written_needs_them() -> None:
    table = net()
    table.written = True
    with pytest.raises(NeedsAll):
        table.update([b"1", b"new", UNSENT], True, [None, b"old", None], False, 1, 10)


def test_columns_are_added_to_the_rows_that_are_held() -> None:
    table = net()
    table.insert([b"1", b"k", b"b"], 1, 10)
    table.delete([None, b"gone", None], 2, 10)
    table.widen((*TABLE.columns, column("w")))
    assert rows(table) == {b"k": [b"1", b"k", b"b", None], b"gone": None}
    table.written = True
    with pytest.raises(NeedsAll):
        table.widen((*table.columns, column("x")))


def test_rows_that_changed_need_an_identity_with_the_key() -> None:
    table = net()
    table.identify(frozenset({"v"}))
    table.insert([b"1", b"k", b"b"], 1, 10)
    for act in (
        lambda: table.delete([b"1", None, None], 2, 10),
        lambda: table.update([b"1", b"k", b"b"], False, None, False, 2, 10),
    ):
        with pytest.raises(BadData, match="its replica identity lacks"):
            act()


@pytest.mark.parametrize("value", [None, UNSENT])
@pytest.mark.parametrize("key", [["id"], ["v", "id"]])
def test_a_key_without_a_value_is_refused(key: list[str], value: Any) -> None:
    table = net(*key)
    table.insert([b"1", b"k", b"b"], 1, 10)
    table.require_keys()
    table.insert([b"1", value, b"b"], 2, 10)
    with pytest.raises(BadData, match=r"incomplete key: .*id = (NULL|not sent)"):
        table.require_keys()


OPS = st.lists(
    st.tuples(st.sampled_from("IUMDT"), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.booleans()),
    max_size=12,
)


@given(OPS)
def test_net_changes_give_what_the_changes_give_one_by_one(ops: list[tuple[str, int, int, bool, bool]]) -> None:
    """A database that sends big only when it changed, or with the whole old row."""
    database: dict[bytes, list[bytes]] = {b"%d" % at: [b"0", b"%d" % at, b"first"] for at in range(2)}
    before = {key: list(row) for key, row in database.items()}
    table, numbers = net(), itertools.count(1, 2)
    for op, first, second, changes_big, whole in ops:
        key, other, number = b"%d" % first, b"%d" % second, next(numbers)
        if op == "I" and key not in database:
            database[key] = [b"%d" % number, key, b"big %d" % number]
            table.insert([*database[key]], number, 0)
        elif op == "D" and key in database:
            row = database.pop(key)
            table.delete([*row] if whole else [None, key, None], number, 0)
        elif op == "T":
            database.clear()
            table.truncate()
        elif (op == "U" and key in database) or (op == "M" and key in database and other not in database):
            old = database.pop(key)
            moved = op == "M"
            big = b"big %d" % number if changes_big or (moved and not whole) else old[2]
            new = [b"%d" % number, other if moved else key, big]
            database[new[1]] = new
            sent: Row = [new[0], new[1], big if big != old[2] else UNSENT]
            given: Row | None = [*old] if whole else [None, key, None] if moved else None
            table.update(sent, UNSENT in sent, given, whole, number, 0)
    left = table.left_out()
    sink = {} if table.truncated else before
    for key, row in rows(table).items():
        if row is None:
            sink.pop(key, None)
        else:
            assert UNSENT not in row or left == ("big",)
            sink[key] = [sink[key][at] if value is UNSENT else value for at, value in enumerate(row)]  # type: ignore[misc]
    assert sink == database


def test_a_value_that_the_job_does_not_need_need_not_be_one_that_spark_has() -> None:
    """A chunk does not read it, either."""
    day = Column("day", 1082, -1, "date", False, False, "", 1082, -1, "b", 0, -1, ",")
    columns = (column("id"), day)
    every, needed = ([b"1", b"2"], [b"infinity", b"2026-01-01"]), Wanted(frozenset({"id"}), others=False)
    with pytest.raises(BadData, match="infinity is not a valid date of the years 1 to 9999"):
        SlotTable(LogTable("t", 1, columns, ("id",))).arrays(every, str)
    ids, days = SlotTable(LogTable("t", 1, columns, ("id",), needed)).arrays(every, str)
    assert (ids.to_pylist(), days.to_pylist(), str(days.type)) == (["1", "2"], [None, None], "date32[day]")


@pytest.mark.parametrize(("oid", "element", "shape"), [(701, 0, "{}"), (700, 0, "{}"), (1022, 701, "{{1,{}}}")])
@given(steps=st.lists(st.tuples(st.sampled_from("IUD"), st.sampled_from(["0", "-0", "-0.5"])), max_size=8))
def test_zero_and_minus_zero_are_one_key_as_in_the_database(
    oid: int, element: int, shape: str, steps: list[tuple[str, str]]
) -> None:
    """Python compares floats as the database and the sinks do."""
    key = Column("id", oid, -1, "k", True, False, "", oid, -1, "b", element, -1, ",")
    table = SlotTable(LogTable("t", 1, (key, column("v")), ("id",)))
    table.identify(frozenset({"id"}))
    expected: dict[float, tuple[bytes, bytes] | None] = {}
    for number, (op, text) in enumerate(steps):
        told = shape.replace("{{", "{").replace("}}", "}").replace("{}", text).encode()
        value = str(number).encode()
        if op == "U":  # every row moves here
            old = next((was[0] for was in expected.values() if was is not None), told)
            table.update([told, value], False, [old, None], False, 2 * number, 0)
            expected |= {of: None for of, was in expected.items() if was is not None and was[0] == old}
        elif op == "I":
            table.insert([told, value], 2 * number, 0)
        else:
            table.delete([told, None], 2 * number, 0)
        expected[float(text)] = None if op == "D" else (told, value)
    found = {}
    for of, row in rows(table).items():
        text = of.decode().rstrip("}").rpartition(",")[2]
        assert float(text) not in found
        found[float(text)] = row and tuple(row)
    assert found == {of: row for of, row in expected.items() if of in found or row is not None}
