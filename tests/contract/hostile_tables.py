"""Tables of a job as a hostile config and upstream make them: what a sink may refuse of them."""

import json
from typing import Any

from hypothesis import strategies as st

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BackfillError

NAMES = (
    *("id", "ID", "a", "A", "é", "É", "ß", "İ", "", " ", "select", "_backfill_x", "_BACKFILL_op", "x" * 70),
    *('q"uote', "back`tick", "it's", "a b", "a,b", "a;b", "a=b", "a.b", "{a}", "(a)", "new\nline"),
    *("t\tab", "nul\0", "_op", "n", "_change_type", "_commit_version", "_file", "_pos", "_spec_id"),
    *("ctid", "xmin", "tableoid", "rowid"),
)
SIMPLE = (
    *("long", "string", "boolean", "byte", "short", "integer", "float", "double", "binary", "date"),
    *("timestamp", "timestamp_ntz", "decimal(38,10)", "decimal(38,38)", "char(3)", "varchar(5)"),
    *("void", "interval day to second", "interval year to month", "variant", "time(6)"),
)


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.lists(st.tuples(st.sampled_from(("a", "A", "b", "", "_backfill_x", "a.b")), inner), max_size=2)
    return st.one_of(
        inner.map(lambda kind: {"type": "array", "elementType": kind, "containsNull": True}),
        inner.map(lambda kind: {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}),
        fields.map(lambda found: {"type": "struct", "fields": [column(*one) for one in found]}),
    )


KINDS = st.sampled_from(SIMPLE) | st.recursive(st.sampled_from(SIMPLE), _nested, max_leaves=3)
TARGETS = st.sampled_from(("t", "t", "T", "s.t", "a.b.c", "", "_backfill_t", "o'x", "a b", "../t", ".", "x" * 70))


@st.composite
def tables(draw: st.DrawFn) -> tuple[SinkTable, ...]:
    """A right table, and one with at most three things that may be wrong."""
    names = draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
    fields = [column("id", draw(st.just("long") | KINDS)), *(column(n, draw(KINDS)) for n in names if n != "id")]
    key = draw(st.sampled_from((("id",), ("id",), ("id", *names[:1]), ("nope",), ("ID",))))
    right = json.dumps({"type": "struct", "fields": [column("id", "long"), column("a", "string")]})
    return (
        SinkTable("right", "right", ("id",), right),
        SinkTable("t", draw(st.just("t") | TARGETS), key, json.dumps({"type": "struct", "fields": fields})),
    )


def refusal(sink: Any, act: str, given: tuple[SinkTable, ...]) -> tuple[str, str, int] | None:
    """How `check` or `prepare` refuses these tables for a new job; None if it does not."""
    try:
        getattr(sink, act)("orders", given, into_existing=False)
    except BackfillError as error:
        return type(error).__name__, error.message, error.exit_code
    return None
