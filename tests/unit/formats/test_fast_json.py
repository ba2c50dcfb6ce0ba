"""The fast path takes a batch that is plain, whole; whatever is odd in it sends it to the checked path."""

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.formats.fast_json import fast_path, read
from backfill_cli.formats.schemas import of_ddl

PLAIN = "id BIGINT, s STRING, d DECIMAL(10,2), f DOUBLE, o BOOLEAN"
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "d": st.none() | st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: str(Decimal(n).scaleb(-2))),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "o": st.none() | st.booleans(),
        "more": st.none() | st.lists(st.integers()),
    },
)


def way(ddl: str, *required: str) -> Any:
    found = fast_path(of_ddl(ddl), required)
    assert found is not None
    return found


def one(ddl: str, text: str | bytes) -> Any:
    """What the one value's column `a` holds; 'long' for one that takes the checked path."""
    found = read([text.encode() if isinstance(text, str) else text], way(f"a {ddl}"))
    return "long" if found is None else found[0].to_pylist()[0]


@given(st.lists(st.none() | ROWS, min_size=1, max_size=20), st.booleans())
def test_plain_objects_come_back_as_they_were_written(rows: list[dict[str, Any] | None], ascii_only: bool) -> None:
    values = [None if row is None else json.dumps(row, ensure_ascii=ascii_only).encode() for row in rows]
    found = read(values, way(PLAIN))
    assert found is not None
    for name, column in zip(("id", "s", "f", "o"), (found[0], found[1], found[3], found[4]), strict=True):
        assert column.to_pylist() == [None if row is None else row.get(name) for row in rows]
    told = [None if row is None or row.get("d") is None else Decimal(row["d"]) for row in rows]
    assert found[2].to_pylist() == told


@pytest.mark.parametrize(
    ("ddl", "text", "value"),
    [
        ("DECIMAL(10,2)", '{"a": 1.10}', Decimal("1.10")),
        ("DECIMAL(10,2)", '{"a": 1e2}', Decimal("100.00")),
        ("DATE", '{"a": "2026-01-31"}', dt.date(2026, 1, 31)),
        (
            "TIMESTAMP_LTZ",
            '{"a": "2026-01-31T10:00:00.123456Z"}',
            dt.datetime(2026, 1, 31, 10, 0, 0, 123456, dt.UTC),
        ),
        ("TIMESTAMP_NTZ", '{"a": "2026-01-31T10:00:00"}', dt.datetime(2026, 1, 31, 10)),
        ("FLOAT", '{"a": 0.5}', 0.5),
        ("STRING", '{"a": "\\ud83d\\ude00"}', "😀"),
    ],
)
def test_types_are_exact(ddl: str, text: str, value: object) -> None:
    assert one(ddl, text) == value


@pytest.mark.parametrize(
    ("ddl", "text"),
    [
        ("INT", ""),
        ("INT", "null"),
        ("INT", "5"),
        ("INT", '[{"a": 1}]'),
        ("INT", '{"a": 1} '),
        ("INT", '{"a": 1}{"a": 2}'),
        ("INT", '{"a": 1}null{"a": 2}'),
        ("INT", '{"a":\n1}'),
        ("INT", '{"a": 1, "a": 2}'),
        ("INT", '{"a": 1.5}'),
        ("INT", '{"a": "1"}'),
        ("INT", '{"a": 2147483648}'),
        ("TINYINT", '{"a": 200}'),
        ("STRING", '{"a": 5}'),
        ("STRING", '{"a": {"b": 1}}'),
        ("STRING", '{"a": "\\ud800"}'),
        ("STRING", '{"a": "\\udc00"}'),
        ("STRING", b'{"a": "\xff"}'),
        ("DECIMAL(10,2)", '{"a": 1.005}'),
        ("DECIMAL(10,2)", '{"a": 100000000}'),
        ("DOUBLE", '{"a": 1e400}'),
        ("FLOAT", '{"a": 1e300}'),
        ("DATE", '{"a": "2026-02-30"}'),
        ("TIMESTAMP_LTZ", '{"a": "2026-01-31T10:00:00"}'),
        ("TIMESTAMP_LTZ", '{"a": "2026-01-31T10:00:00.1234567Z"}'),
    ],
)
def test_what_is_odd_takes_the_checked_path(ddl: str, text: str | bytes) -> None:
    assert one(ddl, text) == "long"


@pytest.mark.parametrize("text", ['{"É": 1}', '{"A": 1}', '{"\\u0041": 1}'])
def test_a_member_that_is_a_column_but_for_its_case_takes_the_checked_path(text: str) -> None:
    assert read([text.encode()], way("é INT, a INT")) is None
    assert read([b'{"e": 1}'], way("\u00e9 INT, a INT")) is not None


def test_one_odd_value_sends_its_batch_the_checked_path() -> None:
    assert read([b'{"id": 1}', b'{"id": "x"}', b'{"id": 3}'], way("id BIGINT")) is None


def test_a_required_column_is_null_in_tombstones_only() -> None:
    assert read([b'{"id": 1}', None], way("id BIGINT", "id")) is not None
    assert read([b'{"id": 1}', b"{}"], way("id BIGINT", "id")) is None


def test_a_batch_with_all_texts_of_a_group_takes_the_checked_path() -> None:
    one = fast_path(of_ddl("id BIGINT"), odd=[(b'"a"', b'"b"')])
    assert one is not None
    assert read([b'{"id": 1, "a": 2}', b'{"id": 2}'], one) is not None
    assert read([b'{"id": 1, "a": 2}', b'{"id": 2, "b": 1}'], one) is None


@pytest.mark.parametrize("kind", ["BINARY", "ARRAY<INT>", "MAP<STRING,INT>", "STRUCT<x: INT>"])
def test_some_types_always_take_the_checked_path(kind: str) -> None:
    assert fast_path(of_ddl(f"id BIGINT, a {kind}")) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ('{"A": 1}', False),
        (b'{"a": 1, "more": "\xff", "B" : "x"}', False),
        ('{"A": 1, "a": null}', False),
        ('{"b": "x", "more": {"A" : 1}}', True),
        ('{"a": 1, "b": "x", "A": 2}', True),
        ('{"b": "A"}', True),
        ('{"a": null, "b": "\\"A\\":"}', True),
    ],
)
def test_a_member_in_other_letters_takes_the_checked_path(text: str | bytes, plain: bool) -> None:
    value = text if isinstance(text, bytes) else text.encode()
    found = read([b'{"a": 1, "b": "x"}', value], way("a BIGINT, b STRING"))
    assert (found is not None) == plain
