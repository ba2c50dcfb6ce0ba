"""What the options lack to read rows without schema blocks is named at once, with the value that fits."""

import base64
from typing import Any

import pytest

from backfill_cli.decode.debezium_forms import lacks, undeclared
from backfill_cli.model.schema import Columns, field

COLUMNS: Columns = {
    name: field(name, kind)
    for name, kind in {"id": "long", "price": "decimal(10,2)", "at": "timestamp", "note": "string"}.items()
}


def base64_of(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()


def told(*rows: dict[str, Any], timestamps: str | None = None, decimals: str | None = None) -> list[str]:
    return [lack.fault for lack in lacks(COLUMNS, rows, timestamps, decimals, "up")]


@pytest.mark.parametrize(
    ("price", "fits"),
    [
        (base64_of(999), '"precise"'),
        ("12.50", '"string"'),
        (12.5, '"double"'),
        (12, '"double"'),
        ("1234", '"precise" or "string"'),
        (None, '"precise" or "string" or "double"'),
    ],
)
def test_a_form_of_decimals_is_named_that_fits_the_values(price: Any, fits: str) -> None:
    (fault,) = told({"id": 1, "price": price})
    assert fault.startswith("up.decimals: nothing says how decimals are written ('price' decimal(10,2)")
    assert fault.endswith(f": set up.decimals = {fits}")
    assert told({"id": 1, "price": price}, decimals="string") == []


def test_a_form_fits_all_values_of_all_rows() -> None:
    (fault,) = told({"price": "1234"}, {"price": None}, {"price": "12.3"})
    assert fault.endswith('set up.decimals = "string"')


@pytest.mark.parametrize(
    ("at", "fits"),
    [
        (1_767_225_600_000, '"ms"'),
        (1_767_225_600_000_000, '"us"'),
        (1_767_225_600_000_000_000, '"ns"'),
        (-1_767_225_600_000, '"ms" or "us" or "ns"'),
        (86_400_000_000, '"ms" or "us" or "ns"'),
        (0, '"ms" or "us" or "ns"'),
    ],
)
def test_a_unit_of_times_is_named_by_their_magnitude(at: int, fits: str) -> None:
    (fault,) = told({"id": 1, "at": at})
    assert fault.endswith(f": set up.timestamps = {fits}")
    assert told({"id": 1, "at": at}, timestamps="us") == []


def test_times_as_text_need_no_unit_and_columns_that_are_not_there_no_option() -> None:
    assert told({"id": 1, "at": "2026-01-01T00:00:00Z"}, {"id": 2, "at": None}) == []
    assert told() == []


def test_every_fault_is_told_at_once_and_values_in_nested_columns_count() -> None:
    inner = {"type": "array", "elementType": "decimal(5,2)", "containsNull": True}
    columns: Columns = {"prices": field("prices", inner), "at": COLUMNS["at"]}
    rows = [{"prices": [None, "0.5"], "at": 1_767_225_600_000}]
    decimals, timestamps = (lack.fault for lack in lacks(columns, rows, None, None, "up"))
    assert decimals.endswith('set up.decimals = "string"')
    assert timestamps.endswith('set up.timestamps = "ms"')


def test_columns_that_nothing_gives_a_type_to_are_named_with_one() -> None:
    rows = [{"id": 1, "new": None, "flag": True}, {"id": 2, "new": 3, "ratio": 0.5, "more": {"a": 1}}]
    assert undeclared(COLUMNS, rows) == {"new": "BIGINT", "flag": "BOOLEAN", "ratio": "DOUBLE", "more": "STRING"}


@pytest.mark.parametrize(
    ("value", "shown"),
    [({"scale": 2, "value": "AQ=="}, '{"scale": 2, "value": "AQ=="}'), (True, "true"), ([], "[]")],
)
def test_a_decimal_in_a_form_that_no_setting_reads_is_shown_as_the_record_has_it(value: Any, shown: str) -> None:
    (lack,) = lacks({"n": field("n", "decimal(9,2)")}, [{"n": value}], None, None, "upstream.value")
    assert f"like {shown})" in lack.fault
    assert "decimal.handling.mode = string" in lack.fault
    assert "upstream.value.decimals = " not in lack.fault


@pytest.mark.parametrize("kind", ["date", "timestamp", "timestamp_ntz"])
def test_a_time_in_a_form_that_no_setting_reads_is_shown_as_the_record_has_it(kind: str) -> None:
    rows = [{"at": {"seconds": 2, "nanos": None}}]
    (lack,) = lacks({"at": field("at", kind)}, rows, "us", None, "upstream.value")
    assert "times are written in a form that no setting reads" in lack.fault
    assert 'like {"seconds": 2, "nanos": null})' in lack.fault
    assert "time.precision.mode = adaptive" in lack.fault
