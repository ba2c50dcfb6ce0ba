"""What a record is does not depend on how it is parsed, nor on the records beside it."""

from typing import Any

import pytest

from backfill_cli.decode import stored
from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.decode.upserts import upserts
from backfill_cli.model.schema import field, schema_text


def read(kind: Any, *values: str) -> list[tuple[Any, bool]]:
    """(value as Arrow's text, whether it is an error) of a column of JSON objects."""
    decode = JsonRows(schema_text({"v": field("v", kind)}))
    found = decode([f'{{"v":{value}}}'.encode() for value in values])
    assert found.columns["v"].type == stored.arrow_type(kind)
    errors = [None] * len(values) if found.error is None else found.error.to_pylist()
    return [(str(value), error is not None) for value, error in zip(found.columns["v"], errors, strict=True)]


TOO_LARGE = [
    ("decimal(38,18)", "400000000000000000000"),
    ("decimal(38,18)", "345678901234567890123"),
    ("decimal(38,10)", "40000000000000000000000000000"),
    ("decimal(38,2)", "3500000000000000000000000000000000000"),
    ("decimal(38,38)", "2147483648"),
    ("decimal(20,19)", "34028236692093846346.4"),
    ("decimal(38,18)", "4e20"),
    ("decimal(38,0)", "4e38"),
    ("decimal(38,38)", "1e37"),
    ("decimal(10,2)", "100000000"),
    ("decimal(10,2)", "1e76"),
]


@pytest.mark.parametrize("quote", ["", '"'], ids=["number", "text"])
@pytest.mark.parametrize(("kind", "text"), TOO_LARGE)
def test_a_decimal_that_is_too_large_is_refused(kind: str, text: str, quote: str) -> None:
    value = f"{quote}{text}{quote}"
    assert read(kind, value) == [("None", True)]
    assert read(kind, f"-{text}" if not quote else f'"-{text}"') == [("None", True)]
    found = read(kind, "0", value, "null")
    assert [error for _, error in found] == [False, True, False]


@pytest.mark.parametrize(
    "kind", ["decimal(38,18)", "decimal(38,38)", "decimal(38,0)", "decimal(10,2)", "decimal(1,1)"]
)
def test_the_largest_decimals_are_read(kind: str) -> None:
    digits, scale = stored.decimal_of(kind)
    most = "9" * (digits - scale) + ("." + "9" * scale if scale else "")
    most = "0" + most if most.startswith(".") else most
    assert read(kind, most, f'"-{most}"') == [(most, False), (f"-{most}", False)]


@pytest.mark.parametrize("kind", ["string", "date", "timestamp", "binary", "long"])
@pytest.mark.parametrize("key", [b'\0\0\0\0\x07"a"', b"\0\0\0\0\x07", b"\0\0\0\0\x07{}"])
def test_a_key_that_a_schema_registry_wrote_deletes_nothing(kind: str, key: bytes) -> None:
    columns = {"id": field("id", kind)}
    of_key = JsonRows(schema_text(columns), kept_apart=False, scalar=True)
    found = upserts(columns, ["id"], JsonRows(schema_text(columns), ("id",)), of_key, [None], [key])
    assert found.error is not None
    assert "schema registry (schema id 7)" in found.error[0].as_py()
    assert found.columns["id"].null_count == 1
