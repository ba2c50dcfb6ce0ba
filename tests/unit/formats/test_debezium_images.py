"""Which columns the images of removed rows hold: only those prove that a row is another one."""

from typing import Any

import pytest

from backfill_cli.formats.debezium_order import Event, images_in

PLACED = {"table": "t", "txId": 7, "lsn": 1}


def removal(before: Any, told: dict[str, Any] | None = None, op: str = "d", **source: Any) -> Event:
    envelope = {"op": op, "before": before, "after": None, "source": {**PLACED, **source}}
    return envelope, None if told is None else {"id": {"type": "int64", "optional": False}, "c": told}


def rows(*values: Any, told: dict[str, Any] | None = None, **source: Any) -> list[Event]:
    return [removal({"id": n, "c": value}, told, **source) for n, value in enumerate(values)]


NULLABLE = {"type": "string", "optional": True}
WITH_DEFAULT = {"type": "string", "optional": True, "default": "new"}
NOT_NULL = {"type": "string", "optional": False}
NUMBER = {"type": "int32", "optional": False}
DATE = {"type": "int32", "optional": False, "name": "io.debezium.time.Date"}


@pytest.mark.parametrize(
    ("events", "held"),
    [
        (rows("new"), False),  # without a block it may be the column's default
        (rows("new", "new"), False),
        (rows("new", "paid"), True),
        (rows(None, "new"), False),
        (rows("x", told=NULLABLE), True),
        (rows(None, told=NULLABLE), False),
        (rows("new", told=WITH_DEFAULT), False),
        (rows("paid", told=WITH_DEFAULT), True),
        (rows("", told=NOT_NULL), False),
        (rows("x", told=NOT_NULL), True),
        (rows(0, told=NUMBER), False),
        (rows(3, told=NUMBER), True),
        (rows(5, told=DATE), False),  # its zero may be another one
        (rows("__debezium_unavailable_value", told=NULLABLE), False),
        (rows({"a": 1}, {"a": 2}), False),
        (rows("new", "paid", txId=None), False),
        (rows("new", "paid", lsn=None), False),
        (rows("new", "paid", lsn=None, scn="12"), True),
        ([removal({"id": 1, "c": one}, op="c") for one in "ab"], False),
        ([*rows("new"), *rows("paid", table="u")], False),  # each table has its own default
        ([*rows("a", "b"), *rows("c", "d", table="u")], True),
        ([*rows("a", "b"), *rows("c", table="u")], False),
    ],
)
def test_a_column_is_held_once_a_value_is_no_constant(events: list[Event], held: bool) -> None:
    assert images_in(events, ["id"], several=False) == (frozenset("c") if held else None)


def test_tables_that_are_read_as_one_are_looked_at_without_images() -> None:
    assert images_in(rows("new"), ["id"], several=True) == frozenset()
    assert images_in([], ["id"], several=True) is None
