"""What Arrow's parser must not join, as it is given many records as one text; and what is said of a record."""

import pytest

from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.schema import field, schema_text

READ = JsonRows(schema_text({"i": field("i", "integer"), "s": field("s", "string")}))


HALVES = [(b"{", b"}"), (b'{"i": ', b"1}"), (b"{} ", b"{}"), (b'{"s": "', b'"}'), (b'{"i": 1} nu', b"ll")]


@pytest.mark.parametrize(("begin", "end"), HALVES)
def test_halves_of_records_never_join_to_whole_ones(begin: bytes, end: bytes) -> None:
    found = READ([b"{}", b'{"i": 5}', begin, end, b"{}", b'{"i": 5}'])
    assert found.columns["i"].to_pylist() == [None, 5, None, None, None, 5]
    errors = [None] * 6 if found.error is None else found.error.to_pylist()
    are_objects = begin.strip() == end == b"{}"
    assert [error is None for error in errors] == [True, True, are_objects, are_objects, True, True]


def test_the_reason_shows_no_more_of_a_number_than_its_beginning() -> None:
    found = READ([b'{"i": ' + b"9" * 100_000 + b"}"])
    assert found.error is not None
    assert found.error[0].as_py() == f"column 'i': out of range for an int: {'9' * 100}"


@pytest.mark.parametrize(
    ("ddl", "value", "said"),
    [
        (
            "o STRUCT<x: STRING, y: INT>",
            b'{"o": {"x": "a", "y": 2.5}}',
            "column 'o.y': not written as a whole number",
        ),
        (
            "o ARRAY<STRUCT<x: STRUCT<y: DATE>>>",
            b'{"o": [{"x": {"y": "no"}}]}',
            "column 'o.x.y': not exactly a date",
        ),
        ("o STRUCT<x: INT>", b'{"o": 5}', "column 'o': not an object: 5"),
    ],
)
def test_a_fault_names_the_member(ddl: str, value: bytes, said: str) -> None:
    error = JsonRows(schema_text(of_ddl(ddl)), kept_apart=False)([value]).error
    assert error is not None
    assert error[0].as_py().startswith(said)
