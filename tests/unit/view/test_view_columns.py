"""The columns of a planned table, as `plan` shows them."""

import sys
from dataclasses import replace

import pytest

from backfill_cli.model.reports import FieldRead, PlannedTable
from backfill_cli.view import columns
from backfill_cli.view.columns import column_lines

FIELDS = (
    FieldRead("id", "bigint", "id", "int64", (9, 8)),
    FieldRead("id", "bigint", "id", "int32", (7,)),
    FieldRead("birthday", "date", "birthday", "date", (9,)),
    FieldRead("birthday", "date", "born", "date", (8, 7)),
    FieldRead("tags", "array<string>", "tags", "array of string", (9,)),
    FieldRead(None, None, "secret", "string", (9, 8, 7)),
)
COLUMNS = (("id", "bigint"), ("birthday", "date"), ("tags", "array<string>"))
TABLE = PlannedTable("people", "people", ("id",), 1, 3, 0, COLUMNS, fields=FIELDS)


def test_columns_without_schemas_are_told_with_their_types() -> None:
    assert column_lines(replace(TABLE, fields=())) == [
        "  id        bigint",
        "  birthday  date",
        "  tags      array<string>",
    ]


def test_each_column_is_told_with_the_fields_that_it_is_read_from() -> None:
    assert column_lines(TABLE) == [
        "  id        bigint         int64; int32 in 7",
        "  birthday  date           date; born: date in 8 and 7",
        "  tags      array<string>  array of string; not in 8 and 7",
        "  by schema ids 9, 8 and 7 (of a sample, and the newest)",
        "  left out: secret",
    ]


def test_of_a_transform_the_columns_before_it_are_told_apart() -> None:
    made = replace(TABLE, columns=(("id", "bigint"), ("age", "int")), transformed=True)
    assert column_lines(made) == [
        "  id   bigint",
        "  age  int",
        "  before its transform, by schema ids 9, 8 and 7 (of a sample, and the newest):",
        *column_lines(TABLE)[:3],
        "  left out: secret",
    ]


def test_many_schemas_are_counted() -> None:
    many = replace(TABLE, fields=(FieldRead("id", "bigint", "id", "int64", tuple(range(12, 0, -1))),))
    assert column_lines(many)[-1] == "  by schema ids 12, 11, 10, 9 and 8 more (of a sample, and the newest)"
    one = replace(TABLE, fields=(FieldRead("id", "bigint", "id", "int64", (12,)),))
    assert column_lines(one)[-1] == "  by schema id 12 (of a sample, and the newest)"


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_no_line_is_wider_than_its_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "interactive", lambda stream: stream is sys.stdout)
    monkeypatch.setattr("backfill_cli.view.console.interactive", lambda _: True)
    monkeypatch.setenv("COLUMNS", str(width))
    lines = [line for one in column_lines(TABLE) for line in one.split("\n")]
    assert max(map(len, lines)) <= width
    told = " ".join(" ".join(lines).split())
    assert all(one.written in told for one in FIELDS[:-1])
