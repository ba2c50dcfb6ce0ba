"""The Iceberg sink under the contract, and what can only go wrong with a lake's table."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed
from iceberg_values import VALUES
from one_task import in_one_task
from pydantic import ValidationError
from sink_contract import Epochs, Read, Row, SinkContract, a_table, rows

from backfill_cli.contracts import EpochCommit
from backfill_cli.errors import RESTORE, Held, SinkInUse, StateConflict, UsageError
from backfill_cli.formats.digests import words_digest
from backfill_cli.lake.iceberg.places import SPARK_CATALOG, Place
from backfill_cli.model.checkpoint import Marker, Owner
from backfill_cli.model.digest import spec_of
from backfill_cli.model.plan import Staged
from backfill_cli.model.schema import field, fields_of
from backfill_cli.sinks.iceberg import IcebergSinkOptions, connector, writing
from backfill_cli.sinks.iceberg.sink import IcebergSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def opened(spark: "SparkSession", folder: Path) -> IcebergSink:
    sink = connector.open(IcebergSinkOptions(table=f"{folder}/{{table}}"))
    assert isinstance(sink, IcebergSink)
    sink.use(lambda: spark)
    return in_one_task(sink)


def read_table(folder: Path, target: str) -> list[Row]:
    """Read by pyiceberg, which shares no code with the writer."""
    from pyiceberg.table import StaticTable

    found: list[Row] = StaticTable.from_metadata(str(folder / target)).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda row: row["id"])


def refs(folder: Path, target: str) -> dict[str, int]:
    from pyiceberg.table import StaticTable

    told = StaticTable.from_metadata(str(folder / target)).metadata.refs
    return {name: ref.snapshot_id for name, ref in told.items()}


def strange(spark: "SparkSession", folder: Path) -> Callable[[str], None]:
    """Another program that uses the table: {t} is the table's name, {c} its catalog's."""
    place, session = Place.of(f"{folder}/orders"), spark.newSession()
    place.register(session)

    def runs(sql: str) -> None:
        session.sql(sql.format(t=place.sql, c=place.catalog))

    return runs


def at_point(point: str, act: Callable[[], None]) -> Callable[[str], None]:
    """A failpoint that runs `act`, once."""
    left = [point]

    def reached(name: str) -> None:
        if name in left:
            left.remove(name)
            act()

    return reached


EXPIRE = (
    "CALL {c}.system.expire_snapshots(table => 'orders', older_than => TIMESTAMP '2999-01-01', retain_last => 1)"
)


def dies() -> None:
    raise KeyboardInterrupt


def with_rows(commit: EpochCommit, count: int) -> Staged:
    told = commit.staged
    return replace(told, tables={name: replace(one, rows=count) for name, one in told.tables.items()})


@pytest.mark.in_turn
class TestIcebergSink(SinkContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Path:
        return tmp_path / "lake"

    @pytest.fixture
    def sink(self, spark: "SparkSession", lake: Path) -> IcebergSink:
        return opened(spark, lake)

    @pytest.fixture
    def read(self, lake: Path) -> Read:
        return lambda target: read_table(lake, target)

    # Specific to lakes

    def test_case_40_a_stalled_runner_that_wakes_after_a_takeover_writes_nothing(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The runner has written its rows to its branch, and only has to make them visible."""
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        late, other = epochs.next(upserts=rows((1, "late"), (2, "late"))), opened(spark, lake)
        monkeypatch.setattr(writing, "hit", at_point("sink-before-commit", lambda: other.fence("orders", 2)))
        with pytest.raises(Held, match="job 'orders' was taken over by another runner, which has written"):
            sink.commit(late)
        assert read_table(lake, "orders") == rows((1, "a"))
        other.commit(replace(late, token=2))
        assert read_table(lake, "orders") == rows((1, "late"), (2, "late"))
        assert set(refs(lake, "orders")) == {"main", "backfill_branch_2", "backfill_tag_2"}

    def test_case_37_a_death_before_the_marker_is_held_or_visible_is_made_good(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        for point, text, seen in (("sink-before-commit", "b", "a"), ("sink-before-close", "c", "c")):
            commit = epochs.next(upserts=rows((1, text)))
            with monkeypatch.context() as patch:
                patch.setattr(writing, "hit", at_point(point, dies))
                with pytest.raises(KeyboardInterrupt):
                    sink.commit(commit)
            assert read_table(lake, "orders") == rows((1, seen))
            assert (opened(spark, lake).committed("orders")["orders"].epoch == commit.epoch) == (seen == text)
            opened(spark, lake).commit(commit)
            assert read_table(lake, "orders") == rows((1, text))

    def test_commits_of_others_in_between_are_kept_and_their_maintenance_leaves_the_marker(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stranger = strange(spark, lake)
        sink.commit(epochs.next(inserts=rows((1, "a"), (2, "b"))))

        def they_write_and_clean_up() -> None:
            for key in (90, 92):
                stranger(f"INSERT INTO {{t}} VALUES ({key}, 'theirs')")
            stranger(EXPIRE)

        monkeypatch.setattr(writing, "hit", at_point("sink-before-commit", they_write_and_clean_up))
        sink.commit(epochs.next(upserts=rows((2, "B")), deletes=[1]))
        assert read_table(lake, "orders") == rows((2, "B"), (90, "theirs"), (92, "theirs"))
        stranger("INSERT INTO {t} VALUES (91, 'theirs')")
        stranger("CALL {c}.system.rewrite_data_files(table => 'orders', options => map('rewrite-all', 'true'))")
        stranger(EXPIRE)
        assert opened(spark, lake).committed("orders")["orders"] == Marker(20, 1, "a20")
        sink.commit(epochs.next(upserts=rows((3, "c"))))
        assert [row["id"] for row in read_table(lake, "orders")] == [2, 3, 90, 91, 92]

    def test_a_commit_of_others_before_the_marker_is_held_does_not_cost_it(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, epochs: Epochs, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Others write between the epoch and its tag; a later epoch dies on its branch; the snapshots expire."""
        stranger = strange(spark, lake)
        theirs = "INSERT INTO {t} VALUES (90, 'theirs')"
        monkeypatch.setattr(writing, "hit", at_point("sink-before-close", lambda: stranger(theirs)))
        sink.commit(first := epochs.next(inserts=rows((1, "a"))))
        monkeypatch.setattr(writing, "hit", at_point("sink-before-commit", dies))
        with pytest.raises(KeyboardInterrupt):
            sink.commit(epochs.next(upserts=rows((1, "b"))))
        stranger(EXPIRE)
        assert opened(spark, lake).committed("orders")["orders"].epoch == first.epoch

    def test_case_36_a_table_that_was_rolled_back_or_made_anew_is_told(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, epochs: Epochs
    ) -> None:
        stranger = strange(spark, lake)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        before = refs(lake, "orders")["main"]
        sink.commit(epochs.next(inserts=rows((2, "b"))))
        stranger(f"CALL {{c}}.system.rollback_to_snapshot('orders', {before})")
        assert sink.committed("orders")["orders"].epoch == 10
        with pytest.raises(StateConflict, match="restored from an older copy"):
            sink.commit(epochs.next(inserts=rows((3, "c"))))
        stranger("DROP TABLE {t} PURGE")
        with pytest.raises(StateConflict, match="is gone, but it held rows of job 'orders' up to commit"):
            sink.prepare("orders", epochs.tables, into_existing=True)
        stranger("CREATE TABLE {t} (id BIGINT NOT NULL, name STRING) USING iceberg")
        assert sink.committed("orders")["orders"].epoch == 0

    def test_a_table_with_partitions_and_rows_of_others_is_written_by_key_and_keeps_its_shape(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, tmp_path: Path
    ) -> None:
        stranger = strange(spark, lake)
        stranger(
            "CREATE TABLE {t} (id BIGINT, mine INT, name STRING) USING iceberg "
            "PARTITIONED BY (bucket(3, id), mine) TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')"
        )
        stranger("INSERT INTO {t} VALUES (1, 7, 'theirs'), (2, 7, 'theirs'), (3, 8, 'theirs')")
        epochs = Epochs(tmp_path / "staging", tables=(a_table(plain_inserts=False),))
        with pytest.raises(SinkInUse, match="--into-existing"):
            sink.prepare("orders", epochs.tables, into_existing=False)
        sink.prepare("orders", epochs.tables, into_existing=True)
        sink.fence("orders", 1)
        sink.commit(epochs.next(inserts=rows((2, "b"), (9, "i"))))
        sink.commit(epochs.next(upserts=rows((3, "C"), (9, "I")), deletes=[1]))
        assert read_table(lake, "orders") == [
            {"id": 2, "mine": None, "name": "b"},
            {"id": 3, "mine": 8, "name": "C"},
            {"id": 9, "mine": None, "name": "I"},
        ]
        from pyiceberg.table import StaticTable

        told = StaticTable.from_metadata(str(lake / "orders"))
        assert [one.name for one in told.spec().fields] == ["id_bucket", "mine"]
        assert told.properties["write.merge.mode"] == "merge-on-read"

    def test_values_survive_exactly_and_verify_reads_them_as_they_are(
        self, sink: IcebergSink, spark: "SparkSession", lake: Path, tmp_path: Path
    ) -> None:
        schema = {"type": "struct", "fields": [field(name, kind) for name, (kind, _, _) in VALUES.items()]}
        given = [
            {"id": at, **{name: values[at] for name, (_, _, values) in VALUES.items() if name != "id"}}
            for at in range(2)
        ]
        table = replace(a_table(), schema=json.dumps(schema))
        epochs = Epochs(tmp_path / "staging", tables=(table,))
        sink.prepare("orders", epochs.tables, into_existing=False)
        commit = epochs.next(inserts=rows((9, "x")))
        path = Path(commit.folder) / commit.staged.tables["orders"].inserts[0].path
        pq.write_table(
            pa.Table.from_pylist(given, pa.schema([(n, kind) for n, (_, kind, _) in VALUES.items()])), path
        )
        sink.commit(replace(commit, staged=with_rows(commit, 2)))
        with sink.copied("orders", True, tmp_path) as copy:
            frame = copy.frame(spark, table, list(VALUES), None)
            assert [f["type"] for f in fields_of(frame.schema.json())] == [kind for kind, _, _ in VALUES.values()]
            found = sorted(frame.toArrow().to_pylist(), key=lambda row: row["id"])
            # NaN differs from itself, -0.0 does not from 0.0
            assert [str(row) for row in found] == [str(row) for row in given]
            survey = copy.survey(table)
            assert (survey.low, survey.high) == (0, 1)
            spec = spec_of(table.schema, table.key, survey.few)
            assert spec is not None
            assert copy.digest(table, spec, None) == words_digest(frame, spec, None)
            saved = copy.saved()
            assert saved is not None
            sink.commit(epochs.next(deletes=[0]))
            assert copy.frame(spark, table, ["id"], None).count() == 2, "no commit changes what it reads"

    def test_a_stopped_jobs_tables_that_cannot_be_compared_are_refused_at_once(
        self, sink: IcebergSink, lake: Path, tmp_path: Path
    ) -> None:
        tables = (a_table("a"), a_table("b"))
        epochs = Epochs(tmp_path / "s", job="two", tables=tables)
        sink.own("two", Owner("catalog", "host", "path"), None)
        with sink.copied("two", False, tmp_path) as copy:
            assert copy.saved() is None, "it has no table yet"
        sink.prepare("two", tables, into_existing=False)
        with sink.copied("two", False, tmp_path) as copy:
            assert copy.saved() is None, "nothing is committed yet"
        sink.commit(epochs.next())
        sink.commit(replace(epochs.next(), only=frozenset({"b"})))
        with pytest.raises(StateConflict, match=r"several commits \(a: 10, b: 20\)") as caught:
            sink.copied("two", False, tmp_path).__enter__()
        assert str(caught.value.hint) == "backfill resume two"
        shutil.rmtree(lake / "a")
        with pytest.raises(StateConflict, match="table 'a' of the sink is gone") as caught:
            sink.copied("two", True, tmp_path).__enter__()
        assert caught.value.hint == RESTORE

    def test_a_table_of_a_named_catalog_is_filled_as_one_in_a_folder(
        self, spark: "SparkSession", tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        for name, value in (("", SPARK_CATALOG), (".type", "hadoop"), (".warehouse", str(tmp_path / "house"))):
            spark.conf.set(f"spark.sql.catalog.house{name}", value)
            request.addfinalizer(partial(spark.conf.unset, f"spark.sql.catalog.house{name}"))
        sink = connector.open(IcebergSinkOptions(table="house.db.{table}"))
        assert isinstance(sink, IcebergSink)
        sink.use(lambda: spark)
        epochs = Epochs(tmp_path / "staging")
        assert sink.owner("orders") is None
        sink.prepare("orders", epochs.tables, into_existing=False)
        sink.fence("orders", 1)
        sink.commit(epochs.next(inserts=rows((1, "a"))))
        sink.commit(epochs.next(upserts=rows((2, "b"))))
        assert read_table(tmp_path / "house" / "db", "orders") == rows((1, "a"), (2, "b"))
        assert sink.committed("orders") == {"orders": Marker(20, 1, "a20")}
        by_folder = opened(spark, tmp_path / "house" / "db")
        assert sink.places(epochs.tables) == by_folder.places(epochs.tables), "it is the same table"
        with pytest.raises(Held, match=r"belongs to job 'orders'.*a tag of the table says so") as taken:
            by_folder.check("other", epochs.tables, into_existing=True)
        with typed(taken.value) as hint:
            assert hint.commands() == [["drop", "orders", "--confirm", "orders", "--sink", "job.toml"]]
            sink.forget("orders")
            by_folder.check("other", epochs.tables, into_existing=True)

    def test_what_is_no_path_and_no_name_is_refused(self, spark: "SparkSession", tmp_path: Path) -> None:
        with pytest.raises(ValidationError, match=r"or catalog\.schema\.table"):
            IcebergSinkOptions(table="orders")
        sink = IcebergSink(IcebergSinkOptions(table="nowhere.db.orders"))
        sink.use(lambda: spark)
        with pytest.raises(UsageError, match="nowhere"):
            sink.check("orders", (a_table(),), into_existing=False)
