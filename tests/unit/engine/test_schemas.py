"""Which changes of a schema a job can follow, and what a transform makes of one."""

import json
from typing import TYPE_CHECKING

import pytest
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.config.sections import Transform
from backfill_cli.contracts.own import refuse_names
from backfill_cli.engine.staging.transform import evolved, sink_schema
from backfill_cli.errors import BadData, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = st.sampled_from(("integer", "string", "decimal(10,2)"))
columns = st.dictionaries(st.sampled_from("abcde"), TYPES, min_size=1)


def struct(columns: dict[str, str], nullable: bool = True) -> str:
    fields = [{"name": n, "type": t, "nullable": nullable, "metadata": {"of": n}} for n, t in columns.items()]
    return json.dumps({"type": "struct", "fields": fields})


def names(schema: str) -> list[str]:
    return [f["name"] for f in json.loads(schema)["fields"]]


@given(columns, columns, st.booleans())
def test_only_added_columns_are_followed(before: dict[str, str], after: dict[str, str], nullable: bool) -> None:
    known, seen = {"t": struct(before), "u": struct({"x": "date"})}, {"t": struct(after, nullable)}
    if any(after.get(n) != t for n, t in before.items()):
        with pytest.raises(BadData, match="table 't'"):
            evolved(known, seen)
        return
    merged = evolved(known, seen)
    assert merged["u"] == known["u"]
    assert names(merged["t"]) == [*before, *(n for n in after if n not in before)]
    fields = {f["name"]: f for f in json.loads(merged["t"])["fields"]}
    assert all(fields[n]["type"] == t and fields[n]["metadata"] == {"of": n} for n, t in after.items())
    assert all(fields[n]["nullable"] for n in fields), "rows before it have no value"
    assert evolved(merged, seen) == merged


def test_case_26_what_happened_to_each_column_is_said() -> None:
    known = {"t": struct({"a": "integer", "b": "string", "c": "string"})}
    now = {"t": struct({"a": "long", "d": "string", "c": "string"})}
    with pytest.raises(BadData) as caught:
        evolved(known, now)
    assert "table 't'" in caught.value.message
    assert "column 'b' is gone" in caught.value.message
    assert "column 'a': integer became long" in caught.value.message
    assert "only added columns" in str(caught.value.hint)
    assert "undoing the change does not remove it from the upstream's log" in str(caught.value.hint)
    with typed(caught.value.naming("orders", True)) as hint:
        assert hint.commands() == [["drop", "orders", "--with-rows", "--confirm", "orders"]]  # test_hints.py
        assert evolved(now, now) == now  # a job that starts now begins with these columns


def test_a_schema_that_was_not_seen_again_stays() -> None:
    known = {"t": struct({"a": "integer"})}
    assert evolved(known, {}) == known


def test_a_column_that_differs_from_another_by_case_alone_is_refused() -> None:
    with pytest.raises(BadData, match="'Name' differs from 'name' only in case") as caught:
        evolved({"t": struct({"name": "string"})}, {"t": struct({"name": "string", "Name": "string"})})
    assert_renamed_before_starting_over(caught.value, "Name", ["name", "Name"])


def test_without_a_transform_the_sink_has_the_sources_schema_and_no_session_is_asked() -> None:
    source = struct({"a": "integer"})
    assert sink_schema(None, source, Transform()) == source  # type: ignore[arg-type]


def test_the_sinks_schema_is_the_selects(spark: "SparkSession") -> None:
    source = struct({"a": "integer", "b": "string"})
    shape = Transform(select=["a AS id", "b", "a + 1.5 AS c"], where="b <> ''")
    fields = json.loads(sink_schema(lambda: spark, source, shape))["fields"]
    assert [(f["name"], f["type"]) for f in fields] == [
        ("id", "integer"),
        ("b", "string"),
        ("c", "decimal(12,1)"),
    ]
    assert fields[0]["metadata"] == {"of": "a"}, "a renamed column keeps what its source said of it"


@pytest.mark.parametrize("shape", [Transform(where="nope > 0"), Transform(select=["nope"])])
def test_a_transform_that_does_not_fit_is_a_usage_error_that_names_the_column(
    spark: "SparkSession", shape: Transform
) -> None:
    with pytest.raises(UsageError, match="nope") as caught:
        sink_schema(lambda: spark, struct({"a": "integer"}), shape)
    with typed(caught.value) as hint:
        hint.says("correct [transform]; then drop the job and start over")  # by its command, if there is a job
        named = Transform(select=["a AS nope"])
        assert names(sink_schema(lambda: spark, struct({"a": "integer"}), named)) == ["nope"]


def test_an_added_column_with_a_name_of_ours_stops_the_job_by_name() -> None:
    with pytest.raises(BadData, match="column '_Backfill_op' has a name that is backfill's own") as caught:
        evolved({"t": struct({"a": "integer"})}, {"t": struct({"a": "integer", "_Backfill_op": "integer"})})
    assert_renamed_before_starting_over(caught.value, "_Backfill_op", ["a", "_Backfill_op"])


def assert_renamed_before_starting_over(refused: BadData, name: str, columns: list[str]) -> None:
    """To start over alone does not help: a start refuses such a column."""
    with pytest.raises(UsageError):
        refuse_names("t", columns)
    with typed(refused) as hint:
        hint.says(f"rename {name!r} upstream; then drop the job and start over")
        refuse_names("t", [*columns[:-1], "other"])
