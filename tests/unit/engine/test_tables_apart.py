"""No table is in a job twice, however it is spelled: two of the upstream's, two of the sink's, or one of each."""

import itertools
import os
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hint_typed import typed
from oracle.lake_writers import Folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

from backfill_cli.contracts import Sink, SinkTable, Source, TableSpec
from backfill_cli.engine.job.select import require_apart
from backfill_cli.errors import Fatal, Held, UsageError
from backfill_cli.formats.listing import local_path
from backfill_cli.lake.iceberg.places import SPARK_CATALOG, Place
from backfill_cli.sinks.delta import connector as delta_sink
from backfill_cli.sinks.iceberg import connector as iceberg_sink
from backfill_cli.spark.object_store import one_spelling
from backfill_cli.upstreams.delta import connector as delta
from backfill_cli.upstreams.files import connector as files
from backfill_cli.upstreams.iceberg import connector as iceberg

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
SCHEMA = '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]}'
FEED = {"delta.enableChangeDataFeed": "true"}
SPELLINGS = ("{table}", "./{table}", "x/../{table}", "{table}/", "link/{table}")


def _no_session() -> Any:
    raise AssertionError("no Spark is needed to tell tables apart")


def _lake(folder: Path) -> None:
    """`a` of either format, `twin` the same one, `other` another; `link` is the folder itself."""
    for name in ("a", "other"):
        write_deltalake(str(folder / "delta" / name), ROWS, configuration=FEED)
        table = Folder(folder / "iceberg" / name).created(ROWS.schema)
        table.append(ROWS)
    for form in ("delta", "iceberg"):
        (folder / form / "twin").symlink_to(folder / form / "a")
        (folder / form / "link").symlink_to(folder / form)
        (folder / form / "x").mkdir()


def _upstream(form: str, table: str, *names: str) -> Source:
    connector = {"delta": delta, "iceberg": iceberg}[form]
    options = connector.options.model_validate({"type": form, "table": table, "version": "latest"})
    opened: Any = connector.open(options, [TableSpec(name, ("id",)) for name in names])
    opened.use(_no_session)
    opened.pin()
    return opened  # type: ignore[no-any-return]


def _sink(form: str, table: str) -> Sink:
    connector = {"delta": delta_sink, "iceberg": iceberg_sink}[form]
    opened: Any = connector.open(connector.options.model_validate({"type": form, "table": table}))
    opened.use(_no_session)
    return opened  # type: ignore[no-any-return]


def _tables(*targets: str) -> list[SinkTable]:
    return [SinkTable(f"of {target}", target, ("id",), SCHEMA) for target in targets]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    _lake(tmp_path)
    return tmp_path


def _uri(path: Path) -> list[str]:
    return [f"{path}", f"file:{path}", f"file://{path}", f"file://localhost{path}", os.path.relpath(path)]


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_one_table_twice_in_the_upstream_is_refused_and_two_tables_are_not(lake: Path, form: str) -> None:
    nowhere = _sink(form, str(lake / "out" / "{table}"))
    twice = _upstream(form, f"{lake / form}/{{table}}", "a", "other", "twin")
    with pytest.raises(UsageError, match="tables 'a' and 'twin' are the same table of the upstream") as refused:
        require_apart("a", twice, nowhere, _tables("1", "2", "3"))
    with typed(refused.value) as hint:
        hint.says("remove one of them from [[tables]]")
        require_apart("a", _upstream(form, f"{lake / form}/{{table}}", "a", "other"), nowhere, _tables("1", "2"))


@pytest.mark.parametrize("form", ["delta", "iceberg"])
@pytest.mark.parametrize("names", [("a", "twin"), ("new", "x/../new"), ("new", "link/new"), ("new", "./new")])
def test_one_target_twice_is_refused_whether_it_exists_or_not(
    lake: Path, form: str, names: tuple[str, str]
) -> None:
    source = _upstream("delta", str(lake / "delta" / "other"), "o")
    with pytest.raises(UsageError, match=f"tables 'of {names[0]}' and 'of {names[1]}' have the same target"):
        require_apart("a", source, _sink(form, str(lake / form / "{table}")), _tables(*names))
    with pytest.raises(UsageError, match="have the same target") as refused:
        require_apart("a", source, _sink(form, str(lake / "one")), _tables("p", "q"))
    with typed(refused.value) as hint:
        hint.says('{table} in sink.table, such as "lake/{table}"')
        require_apart("a", source, _sink(form, str(lake / form / "{table}")), _tables("p", "q"))
    require_apart("a", source, _sink(form, str(lake / form / "{table}")), _tables("new", "newer"))


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_job_that_would_write_the_table_that_it_reads_is_refused_in_every_spelling(
    lake: Path, form: str
) -> None:
    source = _upstream(form, str(lake / form / "a"), "t")
    for root in _uri(lake / form):
        for spelling in SPELLINGS:
            for name in ("a", "twin"):
                with pytest.raises(UsageError, match="is the upstream's own table 't'") as refused:
                    require_apart("a", source, _sink(form, f"{root}/{spelling}"), _tables(name))
        with typed(refused.value) as hint:
            hint.says("another tables.target")
            require_apart("a", source, _sink(form, f"{root}/{spelling}"), _tables("other"))
        require_apart("a", source, _sink(form, f"{root}/{{table}}"), _tables("other"))


def test_one_table_of_iceberg_by_two_catalogs_or_its_folder_is_refused(lake: Path) -> None:
    """Their settings are all that is asked of the session."""
    every = {f"spark.sql.catalog.{name}": SPARK_CATALOG for name in ("one", "two")}
    every |= {f"spark.sql.catalog.{name}.type": "hadoop" for name in ("one", "two")}
    every |= {f"spark.sql.catalog.{name}.warehouse": str(lake) for name in ("one", "two")}
    session: Any = SimpleNamespace(conf=SimpleNamespace(getAll=every))

    def opened(connector: Any, table: str, *more: Any) -> Any:
        made = connector.open(connector.options.model_validate({"type": "iceberg", "table": table}), *more)
        made.use(lambda: session)
        return made

    names = ("one.iceberg.{table}", "two.iceberg.{table}", f"{lake}/iceberg/{{table}}")
    for source, target in itertools.permutations(names, 2):
        upstream = opened(iceberg, source, [TableSpec("a", ("id",))])
        upstream.pin()
        with pytest.raises(UsageError, match="is the upstream's own table 'a'"):
            require_apart("a", upstream, opened(iceberg_sink, target), _tables("a"))
        require_apart("a", upstream, opened(iceberg_sink, target), _tables("other"))


def test_uris_of_one_object_are_one_place() -> None:
    spelled = ("s3://bucket/lake/t", "s3a://bucket/lake/t/", "s3a://bucket/lake//t", "s3://bucket/x/../lake/./t")
    assert {one_spelling(one) for one in spelled} == {"s3://bucket/lake/t"}
    assert len({Place.of(one) for one in spelled}) == 1
    apart = ("s3://bucket/t", "s3://other/t", "s3://bucket/T", "hdfs://bucket/t", "hdfs://bucket:9000/t")
    assert len({one_spelling(one) for one in apart}) == len(apart)


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_a_second_job_that_names_the_first_ones_table_by_another_path_is_refused(
    lake: Path, form: str, spark: "SparkSession"
) -> None:
    (table,) = _tables("new")
    first = _sink(form, f"{lake / form}/{{table}}")
    first.use(lambda: spark)  # type: ignore[attr-defined]
    first.prepare("first", [table], into_existing=False)
    (lake / "far").mkdir()
    (lake / "far" / "new").symlink_to(lake / form / "new")
    for root in (lake / form / "link", lake / form / "x" / "..", lake / "far"):
        for path in (f"{root}/{{table}}", f"{root}/new"):
            second = _sink(form, path)
            second.use(lambda: spark)  # type: ignore[attr-defined]
            with pytest.raises((Held, UsageError), match=r"belongs to job 'first'|is a symbolic link"):
                second.prepare("second", [table], into_existing=False)


def test_files_that_two_tables_would_read_are_refused(tmp_path: Path) -> None:
    for name in ("order", "orders", "else"):
        (tmp_path / name).mkdir()
        pq.write_table(ROWS, tmp_path / name / "0.parquet")
    (tmp_path / "mirror").symlink_to(tmp_path / "order")

    def opened(path: str, *names: str) -> Source:
        options = files.options.model_validate(
            {"type": "files", "snapshot": {"path": f"{tmp_path}/{path}", "format": "parquet"}}
        )
        made = files.open(options, [TableSpec(name, ("id",)) for name in names])
        made.pin()
        return made

    sink = _sink("delta", str(tmp_path / "out" / "{table}"))
    for path, names in (("{table}*/*.parquet", ("order", "orders")), ("{table}/*", ("order", "mirror"))):
        upstream = opened(path, *names)
        with pytest.raises(UsageError, match="share rows of it"):
            require_apart("a", upstream, sink, _tables(*names))
    require_apart("a", opened("{table}/*", "order", "else"), sink, _tables("order", "else"))


def test_a_folder_whose_name_holds_file_and_a_colon_is_a_path() -> None:
    assert local_path("/data/profile:/x") == "/data/profile:/x"
    assert local_path("file:/data/x") == local_path("file://localhost/data/x") == "/data/x"


def _changes(folder: Path, name: str, **columns: Any) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"Op": ["I"], "id": pa.array([7], pa.int64()), **columns}), folder / name)


def _with_changes(folder: Path, path: str, *names: str, **more: Any) -> Source:
    for name in names:
        (folder / "rows" / name).mkdir(parents=True, exist_ok=True)
        pq.write_table(ROWS, folder / "rows" / name / "0.parquet")
    changes = {"path": f"{folder}/{path}", "format": "dms", **more}
    snapshot = {"path": f"{folder}/rows/{{table}}", "format": "parquet"}
    told = files.options.model_validate({"type": "files", "snapshot": snapshot, "changes": changes})
    return files.open(told, [TableSpec(name, ("id",)) for name in names])


@pytest.mark.parametrize(
    ("path", "names"), [("log/{table}*", ("order", "orders")), ("{table}/*", ("order", "mirror"))]
)
@pytest.mark.parametrize("more", [{}, {"epoch": "n"}])
def test_change_files_that_two_tables_would_apply_are_refused(
    tmp_path: Path, path: str, names: tuple[str, str], more: dict[str, str]
) -> None:
    numbered = {"n": pa.array([1], pa.int64())} if more else {}
    for name in ("log/order-1.parquet", "log/orders-1.parquet", "order/1.parquet"):
        _changes(tmp_path, name, **numbered)
    (tmp_path / "mirror").symlink_to(tmp_path / "order")
    upstream = _with_changes(tmp_path, path, *names, **more)
    upstream.pin()
    sink = _sink("delta", str(tmp_path / "out" / "{table}"))
    with pytest.raises(UsageError, match=f"tables '{names[0]}' and '{names[1]}' are .*share rows of it"):
        require_apart("a", upstream, sink, _tables(*names))


def test_a_change_file_that_lands_later_and_suits_two_tables_stops_the_job_until_it_is_renamed(
    tmp_path: Path,
) -> None:
    _changes(tmp_path, "log/a-1.parquet")
    upstream = _with_changes(tmp_path, "log/*{table}-*", "a", "b")
    pin = upstream.pin()
    require_apart("a", upstream, _sink("delta", str(tmp_path / "out" / "{table}")), _tables("a", "b"))
    upstream.restore(pin)
    upstream.observe(pin.position, False)
    _changes(tmp_path, "log/b-a-2.parquet")
    with pytest.raises(Fatal, match=r"log/b-a-2.parquet: a change file of table 'a' and of table 'b'") as told:
        upstream.observe(pin.position, False)
    with typed(told.value) as hint:
        hint.says("rename it, so that it suits upstream.changes.path for one table only")
        (tmp_path / "log" / "b-a-2.parquet").rename(tmp_path / "log" / "a-2.parquet")
        resumed = _with_changes(tmp_path, "log/*{table}-*", "a", "b")
        resumed.restore(pin)
        assert len(resumed.observe(pin.position, False).pending) == 2
