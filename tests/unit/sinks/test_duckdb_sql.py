"""Names are data: whatever they contain, they stay one name."""

import duckdb
import pytest
from hint_typed import typed
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.errors import UsageError
from backfill_cli.sinks.duckdb.dialect import DUCKDB, listed, quoted
from backfill_cli.sinks.sql.dialect import literal

NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("\"'.;-[]`\\% \n"),
    min_size=1,
)


@settings(max_examples=300)
@given(NAMES)
def test_a_quoted_name_is_that_name_and_nothing_else(name: str) -> None:
    assert duckdb.sql(f"SELECT 1 AS {quoted(name)}").columns == [name]


@pytest.mark.seconds
@settings(max_examples=100)
@given(NAMES, NAMES.filter(lambda name: not name.lower().startswith("_backfill_")))
def test_a_table_of_any_name_is_found_in_its_schema(schema: str, table: str) -> None:
    target = DUCKDB.target(schema, table)
    with duckdb.connect() as con:
        con.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        con.execute(f"CREATE TABLE {target.sql} (x INTEGER)")
        found = con.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
    assert found == [(schema if schema.lower() != "main" else "main", table)]


@settings(max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_a_literal_is_that_text(text: str) -> None:
    assert duckdb.sql(f"SELECT {literal(text)}").fetchall() == [(text,)]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_name_that_duckdb_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        quoted(name)
    with typed(refused.value) as hint:
        hint.says("rename it")
        assert quoted("name") == '"name"'


def test_a_list_of_names_takes_a_prefix() -> None:
    assert listed(["a", 'b"'], "t") == 't."a", t."b"""'


@given(NAMES.filter(lambda n: "." not in n), NAMES.filter(lambda n: "." not in n))
def test_schema_and_table_are_kept_apart(schema: str, table: str) -> None:
    if table.lower().startswith("_backfill_"):
        return
    assert DUCKDB.parse(table) == DUCKDB.target("main", table)
    assert DUCKDB.parse(f"{schema}.{table}") == DUCKDB.target(schema, table)
