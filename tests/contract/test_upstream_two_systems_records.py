"""Records of a topic that are no rows of the files' table, and columns that come, lack or do not fit."""

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from broker import Broker
from hint_typed import typed
from kafka_topics import new_topic
from pyspark.errors import PySparkException
from two_systems_world import TwoSystems, after_snapshot, record
from upstream_world import TABLE, replayed, row

from backfill_cli.errors import BackfillError, BadData, ConfigError, StateConflict
from backfill_cli.model.position import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def world(broker: Broker, tmp_path: Path) -> TwoSystems:
    made = TwoSystems(tmp_path, new_topic(broker, 2))
    made.load([[row(1, "one"), row(2, "two")]])
    return made


def failed(world: TwoSystems, spark: "SparkSession", **options: Any) -> BackfillError:
    upstream = world.open(**options)
    with pytest.raises(PySparkException) as caught:
        after_snapshot(upstream, spark)
    found = upstream.failure(caught.value)
    assert found is not None
    return found


def test_a_record_that_cannot_be_read_is_named(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(2, "two"))])
    world.topic.write([record("c", None, {"id": 4, "name": "four"}), b"no json"], 0)
    found = failed(world, spark)
    assert isinstance(found, BadData)
    assert "the record at partition 0, offset 2 cannot be read: not JSON: expecting value" in found.message


@pytest.mark.parametrize("block", [False, True])
def test_a_column_that_the_snapshot_lacks_is_no_change_that_may_be_left_out(
    world: TwoSystems, spark: "SparkSession", block: bool
) -> None:
    more = {"id": 2, "name": "two", "note": "new"}
    world.land([("insert", None, row(2, "two"))])
    upstream = world.open()
    upstream.pin()
    world.topic.write([record("u", None, more)], 0)
    with pytest.raises(ConfigError, match=r"have a column 'note', but the snapshot does not") as refused:
        world.open().pin()
    with typed(refused.value) as hint:
        hint.says("that it leaves out in upstream.changes.ignore")
        assert after_snapshot(world.open(ignore=["note"]), spark) == [row(1, "one"), row(2, "two")]


def test_a_column_that_comes_later_is_named_until_it_is_ignored(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(2, "two"))] * 30)
    pin = world.open().pin()
    world.topic.write([record("u", None, {"id": 2, "name": "more", "note": "new"})], 0)
    world.land([("insert", None, row(4, "four"))] * 30)  # past what a start looks at
    later = world.open()
    later.restore(pin)
    latest = later.observe(pin.position, False).latest
    with pytest.raises(PySparkException, match=r"column 'note' is new in its row"):
        later.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]).toArrow()
    ignoring = world.open(ignore=["note"])
    ignoring.restore(pin)
    rows = replayed(ignoring.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE]))
    assert rows == [row(2, "more"), row(4, "four")]


@pytest.mark.parametrize("form", ["debezium", "rows"])
def test_a_row_without_a_column_of_the_snapshot_is_named_unless_that_column_is_sparse(
    world: TwoSystems, spark: "SparkSession", form: str
) -> None:
    world.form = form
    world.land([("insert", None, row(2, "two"))] * 30)
    pin = world.open().pin()
    less = {"id": 2}
    value = record("u", None, less) if form == "debezium" else json.dumps(less).encode()
    world.topic.write([value], 0, [b'{"id": 2}'])
    world.land([("insert", None, row(4, "four"))] * 30)
    for sparse, told in (((), "column 'name' is not in its row"), (("name",), None)):
        later = world.open(sparse=sparse)
        later.restore(pin)
        latest = later.observe(pin.position, False).latest
        frame = later.changes(spark, TABLE, pin.position, latest, pin.schema[TABLE])
        if told is None:
            assert replayed(frame) == [row(2, None), row(4, "four")]
        else:
            with pytest.raises(PySparkException, match=told) as caught:
                frame.toArrow()
            error = later.failure(caught.value)
            assert error is not None
            assert "upstream.changes.sparse" in str(error.hint)


def test_rows_in_json_with_other_names_are_no_rows_of_the_snapshot(
    world: TwoSystems, spark: "SparkSession"
) -> None:
    world.topic.write([b'{"id": 2, "name": "x", "label": 1}'], 0, [b'{"id": 2}'])
    world.form = "rows"
    found = failed(world, spark)
    assert "column 'label' is new in its row" in found.message
    assert "upstream.changes.ignore" in str(found.hint)


def test_a_recreated_topic_is_told_by_verify_too(world: TwoSystems, spark: "SparkSession") -> None:
    world.land([("insert", None, row(2, "two"))])
    pin = world.open().pin()
    world.topic.recreate(2)
    later = world.open()
    later.restore(pin)
    with pytest.raises(StateConflict, match="was recreated"):
        later.changes(spark, TABLE, pin.position, Position.of({"0": 1, "1": 0}), pin.schema[TABLE])


def test_a_column_of_the_snapshot_that_no_record_has_is_refused(broker: Broker, tmp_path: Path) -> None:
    world = TwoSystems(tmp_path, new_topic(broker, 2))
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("note", pa.string())])
    world.load([[{"id": 1, "name": "one", "note": "x"}]], schema)
    world.land([("insert", None, row(2, "two"))])
    with pytest.raises(ConfigError, match=r"no record of topic .* has the snapshot's column 'note'") as refused:
        world.open().pin()
    with typed(refused.value) as hint:
        hint.says("those that changes leave out (NULL then) in upstream.changes.sparse")
        world.open(sparse=["note"]).pin()


def test_values_that_could_not_be_read_exactly_are_refused_before_the_job_begins(
    broker: Broker, tmp_path: Path
) -> None:
    world = TwoSystems(tmp_path, new_topic(broker, 2))
    schema = pa.schema([("id", pa.int64()), ("name", pa.decimal128(10, 2))])
    world.load([[{"id": 1, "name": Decimal("1.10")}]], schema)
    with pytest.raises(ConfigError, match=r"upstream\.changes\.value: column 'name'"):
        world.open().pin()
    world.open(value={"decimals": "string"}).pin()
