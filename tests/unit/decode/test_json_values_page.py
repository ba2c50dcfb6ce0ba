"""docs/kafka.md says which JSON values a column takes: the decoder does so."""

import json
import re
from pathlib import Path

import pytest

from backfill_cli.decode.json_rows import JsonRows
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.schema import schema_text

PAGE = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text("utf-8")
SECTION = PAGE.partition("## Values of JSON\n")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in line.split("|")[1:-1]]
    for line in SECTION.splitlines()
    if "`" in line and "|" in line
]
TYPES = [(one, takes, not_read) for of, takes, not_read in ROWS for one in re.split(r", (?![^(<]*[)>])", of)]


@pytest.mark.parametrize(("column", "takes", "not_read"), TYPES, ids=[one for one, *_ in TYPES])
def test_a_column_takes_the_values_that_the_page_says(column: str, takes: str, not_read: str) -> None:
    columns = of_ddl(f"c {column}")
    read = JsonRows(schema_text(columns))
    for value, fits in [(v, True) for v in spans(takes)] + [(v, False) for v in spans(not_read)]:
        json.loads(value)
        found = read([f'{{"c": {value}}}'.encode()])
        refused = found.error is not None and found.error.null_count == 0
        assert (value, refused) == (value, not fits)
        assert found.columns["c"].null_count == refused


def test_the_page_has_the_types_of_columns() -> None:
    assert {one.partition("(")[0].partition("<")[0] for one, *_ in TYPES} == {
        *("BIGINT", "INT", "SMALLINT", "TINYINT", "DECIMAL", "DOUBLE", "FLOAT", "BOOLEAN", "STRING", "BINARY"),
        *("DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRUCT", "MAP", "ARRAY"),
    }


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)
