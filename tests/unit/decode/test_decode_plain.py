"""Keys as Kafka's own serializers of texts and of numbers write them."""

import pytest

from backfill_cli.decode.plain import Plain

LONG = (2**40 + 7).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("form", "kind", "record", "expected"),
    [
        ("long", "long", LONG, 2**40 + 7),
        ("long", "long", (-1).to_bytes(8, "big", signed=True), -1),
        ("long", "integer", LONG, "out of range for an int"),
        ("long", "long", LONG[:4], "4 bytes, but a long has 8"),
        ("string", "string", "schön".encode(), "schön"),
        ("string", "long", b"42", 42),
        ("string", "long", b"4x", "not exactly a bigint"),
        ("string", "string", b"\xff", "not UTF-8 text"),
        ("bytes", "binary", b"\xff", b"\xff"),
    ],
)
def test_a_key_is_the_value_of_one_column_or_refused(
    form: str, kind: str, record: bytes, expected: object
) -> None:
    found = Plain("id", kind, form)([record, None])
    assert found.columns["id"].to_pylist()[1] is None
    error = None if found.error is None else found.error.to_pylist()[0]
    assert error == expected if error else found.columns["id"].to_pylist()[0] == expected
