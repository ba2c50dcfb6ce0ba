"""What of a refill's range the upstream is told: only what it decides as Spark does."""

from datetime import date, datetime
from decimal import Decimal

import pytest

from backfill_cli.config import from_stored
from backfill_cli.contracts import SinkTable
from backfill_cli.engine.verify.extent import pushed
from backfill_cli.model.pushdown import Condition, Value, Wanted
from backfill_cli.model.refill import Extent
from backfill_cli.model.schema import field, schema_text

DAY, MOMENT = date(2026, 1, 1), datetime(2026, 1, 1, 10, 30)


def told(kind: str, extent: Extent) -> tuple[Condition, ...]:
    """What a source with such a column makes of it."""
    schema = schema_text({"k": field("k", kind)})
    conditions = pushed(extent, SinkTable("t", "t", ("k",), schema), "id")
    return Wanted(where=conditions).fitting([field("id", kind)])


@pytest.mark.parametrize(
    ("kind", "first", "value"),
    [
        ("integer", "1000", 1000),
        ("long", "-5", -5),
        ("decimal(10,2)", "7.50", Decimal("7.50")),
        ("date", "2026-01-01", DAY),
        ("timestamp", "2026-01-01 10:30:00", MOMENT),
        ("timestamp_ntz", "2026-01-01 10:30:00", MOMENT),
    ],
)
def test_bounds_of_a_key_are_told_in_its_type_and_by_its_name_upstream(
    kind: str, first: str, value: Value
) -> None:
    lower, upper = Condition("id", ">=", (value,)), Condition("id", "<=", (value,))
    assert told(kind, Extent("", first, first)) == (lower, upper)
    assert told(kind, Extent("", first, None)) == (lower,)
    assert told(kind, Extent("v = 1", None, first)) == (upper,)


@pytest.mark.parametrize(
    ("kind", "first"),
    [("string", "a"), ("timestamp", "2026-01-01 10:30:00+01:00"), ("timestamp", "2026-01-01 10:30")],
)
def test_what_another_system_could_order_or_read_otherwise_is_left_to_spark(kind: str, first: str) -> None:
    assert told(kind, Extent("", first, first)) == ()
    assert told(kind, Extent()) == ()


def test_a_reader_that_needs_a_range_asks_for_it_beside_what_the_transform_needs() -> None:
    config = from_stored(
        """{"job": {"name": "j"}, "sink": {"type": "duckdb", "path": "/d/s"}, "tables": [
            {"name": "a", "key": ["id"]}, {"name": "b", "key": ["id"], "transform": {"where": "v > 1"}}],
            "upstream": {"type": "postgres", "dsn": "host=h dbname=d", "slot": "s"}}"""
    )
    only = (Condition("id", ">=", (1,)),)
    plain, filtered = config.limited("a", only).limited("b", only).table_specs()
    assert plain.wanted == Wanted(where=only)
    assert filtered.wanted.where == (Condition("v", ">", (1,)), *only)
    assert config.limited("a", only).fingerprint() == config.fingerprint()
    assert config.limited("a", only).stored() == config.stored()
