"""Errors for rows that the database refused, whatever the table names and the values."""

import json
import string
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hint_typed import typed
from hypothesis import assume, given
from hypothesis import strategies as st
from postgres import Server
from postgres_database import Database, database
from postgres_sink import begun, sink_of, staging
from sink_contract import Epochs, a_table, rows, schema_json

from backfill_cli.errors import BadData, Fatal, Transient, UsageError
from backfill_cli.sinks.postgres import explain
from backfill_cli.sinks.postgres.explain import stopped_at
from backfill_cli.sinks.postgres.session import Place, client, failure

NAMES = st.one_of(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.text("ab0159,: \n\"'", min_size=1, max_size=12),
    st.sampled_from(["orders_2024", "a, line 3, column b", 'x: "1"', "column", "line 1", "COPY x, line 2"]),
)


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@given(
    table=NAMES,
    columns=st.lists(NAMES, min_size=1, max_size=4, unique=True),
    line=st.integers(1, 10**12),
    words=st.sampled_from([("line", "column"), ("Zeile", "Spalte"), ("строка", "столбец")]),
    value=st.none() | st.text(string.printable, max_size=8),
)
def test_a_copys_row_and_column_are_read_whatever_names_they_stand_beside(
    table: str, columns: list[str], line: int, words: tuple[str, str], value: str | None
) -> None:
    row, column = words
    longer = [name for name in columns if name.startswith((f"{columns[0]}:", f"{columns[0]}\n"))]
    assume(not longer)
    said = "" if value is None else f': "{value}"'
    told = f"COPY {table}, {row} {line}, {column} {columns[0]}{said}"
    found = stopped_at(told, [table], columns)
    assert found is not None
    assert found[0] == line - 1
    assert found[1] == columns[0] or columns[0].startswith(found[1]) or found[1].startswith(columns[0])
    assert stopped_at(f"COPY {table}, {row} {line}", [table], columns) == (line - 1, "?")


def test_a_table_name_with_a_digit_is_no_row() -> None:
    told = "COPY orders_2024, line 7, column name"
    assert stopped_at(told, ["orders_2024"], ["id", "name"]) == (6, "name")
    assert stopped_at(told, ["orders"], ["id", "name"]) is None


def test_a_value_of_a_table_with_a_digit_in_its_name_is_named_with_its_key(db: Database, tmp_path: Path) -> None:
    table = a_table("orders", "orders_2024, line 9")
    epochs = begun(sink_of(db.dsn), tmp_path, table)
    with pytest.raises(BadData, match=r"column 'name': .*\(id\) = \(12\)") as told:
        sink_of(db.dsn).commit(epochs.next(inserts=rows((10, "a"), (11, "b"), (12, "\0"))))
    with typed(told.value) as hint:
        hint.says("correct it upstream")
        corrected = Epochs(tmp_path / "corrected", tables=(table,))
        sink_of(db.dsn).commit(corrected.next(inserts=rows((10, "a"), (11, "b"), (12, "c"))))


@pytest.mark.parametrize("kind", ["date", "array"])
def test_a_value_that_python_does_not_have_hides_no_error_of_the_database(
    db: Database, tmp_path: Path, kind: str
) -> None:
    far = pa.array([0, 2_145_042_906], pa.int32()).cast(pa.date32())
    array = {"type": "array", "elementType": "date", "containsNull": True}
    values = far if kind == "date" else pa.ListArray.from_arrays([0, 1, 2], far)
    schema = schema_json(id="long", v="date")
    table = a_table(schema=schema if kind == "date" else schema.replace('"date"', json.dumps(array)))
    epochs = begun(sink_of(db.dsn), tmp_path, table)
    with pytest.raises(BadData, match=r"column 'v': .*2145042906.*\(id\) = \(2\)"):
        sink_of(db.dsn).commit(staging(epochs, inserts=pa.table({"id": [1, 2], "v": values})))


def test_what_fails_while_it_is_explained_leaves_the_databases_own_sentence(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = begun(sink_of(db.dsn), tmp_path, a_table())

    def fails(*_: object) -> None:
        raise pa.ArrowNotImplementedError("no cast")

    monkeypatch.setattr(explain, "_not_unique", fails)
    with pytest.raises(BadData, match=r'refused: duplicate key value .*"orders_pkey".*\(id\)=\(1\)') as told:
        sink_of(db.dsn).commit(epochs.next(inserts=rows((1, "a"), (1, "b"))))
    with typed(told.value) as hint:
        hint.says("correct the rows upstream")
        sink_of(db.dsn).commit(Epochs(tmp_path / "corrected").next(inserts=rows((1, "a"))))


PLACE = Place.of("postgresql://me@db.example/w")


@pytest.mark.parametrize(
    ("kind", "words", "expected"),
    [
        ("OperationalError", "IO: [libpq] PQgetCopyData() failed: ", Transient),
        ("NotSupportedError", "NOT_IMPLEMENTED: [libpq] Field #2 ('v') has unsupported type", Fatal),
        ("InternalError", "INTERNAL: [libpq] Expected 2 bytes", Fatal),
        ("DataError", "INVALID_DATA: [libpq] Field #2 is out of range", BadData),
        ("ProgrammingError", "INVALID_ARGUMENT: FATAL:  password authentication failed", UsageError),
    ],
)
def test_an_error_of_the_driver_alone_is_no_server_that_is_away(
    kind: str, words: str, expected: type[Exception]
) -> None:
    driver = client()
    made = getattr(driver, kind)
    exc = made(words) if kind == "NotSupportedError" else made(words, status_code=1)
    told = failure(PLACE, "committing", exc)
    assert type(told) is expected
    assert told.hint
    assert ("start the database" in str(told.hint)) == (expected is Transient)
