"""A column that is added with a default: whether rows from before that have it is each format's own notion."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed
from oracle.lake_writers import Folder
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, StringType

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import Fatal
from backfill_cli.model.schema import columns_of
from backfill_cli.upstreams.iceberg import connector
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream


def _rows(**more: Any) -> pa.Table:
    return pa.table({"id": pa.array([len(more)], pa.int64()), **{n: pa.array([v]) for n, v in more.items()}})


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Folder(tmp_path / "t").created(_rows().schema)
    made.append(_rows())
    return made


def _opened(tmp_path: Path) -> IcebergUpstream:
    options = connector.options.model_validate({"type": "iceberg", "table": str(tmp_path / "t")})
    upstream: Any = connector.open(options, [TableSpec("t", ("id",))])
    return upstream  # type: ignore[no-any-return]


@pytest.mark.parametrize(("kind", "default"), [(IntegerType(), 7), (IntegerType(), 0), (StringType(), "")])
def test_a_column_that_fills_old_rows_with_its_default_stops_an_iceberg_job_and_a_new_start_reads_it(
    tmp_path: Path, table: Table, kind: Any, default: Any
) -> None:
    upstream = _opened(tmp_path)
    pin = upstream.pin()
    table.update_schema().add_column("x", kind, default_value=default).commit()
    assert not upstream.observe(pin.position, True).pending, "an ALTER TABLE alone is no snapshot"
    arrow = pa.int32() if kind == IntegerType() else pa.string()
    table.append(_rows(x=None).set_column(1, "x", pa.array([None], arrow)))
    for one in (upstream, _opened(tmp_path)):
        one.restore(pin)
        with pytest.raises(Fatal, match=f"column 'x' was added with the default '{default}'") as refused:
            one.observe(pin.position, True)
    with typed(refused.value) as hint:
        hint.says("drop the job and start over")
        again = _opened(tmp_path)
        pin = again.pin()
        assert list(columns_of(pin.schema["t"])) == ["id", "x"]
        assert not again.observe(pin.position, True).pending


def test_a_default_for_later_rows_alone_is_followed(tmp_path: Path, table: Table) -> None:
    upstream = _opened(tmp_path)
    pin = upstream.pin()
    with table.update_schema() as update:
        update.add_column("x", IntegerType())
    with table.update_schema() as update:
        update.set_default_value("x", 7)
    table.append(_rows(x=7).set_column(1, "x", pa.array([7], pa.int32())))
    (epoch,) = upstream.observe(pin.position, True).pending
    assert [list(columns_of(text)) for _, text in epoch.schema] == [["id", "x"]]
