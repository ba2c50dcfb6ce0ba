"""What a plan asks of the sink is what a start does to it: neither refuses what the other accepts."""

import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BackfillError
from backfill_cli.sinks.duckdb.options import DuckDBOptions
from backfill_cli.sinks.duckdb.sink import DuckDBSink

NAMES = ("id", "ID", "a", "A", "é", "É", "ß", "select", "_backfill_x", 'q"uote', "")
TYPES = ("long", "string", "decimal(38,10)", "timestamp", "void", "interval day to second", "binary", "variant")


def column(name: str, kind: str) -> dict[str, object]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


@st.composite
def tables(draw: st.DrawFn) -> tuple[SinkTable, ...]:
    """One or two tables, most of them right."""
    made = []
    for number in range(draw(st.integers(1, 2))):
        names = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
        fields = [
            column("id", "long"),
            *(column(name, draw(st.sampled_from(TYPES))) for name in names if name != "id"),
        ]
        key = draw(st.sampled_from(("id", "id", "nope", "ID")))
        target = draw(st.sampled_from((f"t{number}", "t0", "T0", "s.t", "")))
        schema = json.dumps({"type": "struct", "fields": fields})
        made.append(SinkTable(f"t{number}", target, (key,), schema, plain_inserts=True))
    return tuple(made)


def told(folder: str, act: str, given: tuple[SinkTable, ...]) -> tuple[str, str, int] | None:
    """How a sink in a new folder refuses these tables; None if it does not."""
    sink = DuckDBSink(DuckDBOptions(path=f"{folder}/sink.duckdb"))
    try:
        getattr(sink, act)("orders", given, into_existing=False)
    except BackfillError as error:
        return type(error).__name__, error.message, error.exit_code
    return None


CASES = json.dumps({"type": "struct", "fields": [column("id", "long"), column("a", "long"), column("A", "long")]})


@settings(max_examples=25)
@given(tables())
@example((SinkTable("t", "t", ("id",), CASES, plain_inserts=True),))
def test_a_check_of_tables_that_are_not_there_yet_refuses_what_creating_them_would(
    given: tuple[SinkTable, ...],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checked = told(folder, "check", given)
        assert list(Path(folder).iterdir()) == []
        assert checked == told(folder, "prepare", given)
