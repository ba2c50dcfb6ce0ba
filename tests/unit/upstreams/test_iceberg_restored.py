"""An Iceberg table that was restored from an older copy, and perhaps written on, is not followed from there."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hint_typed import typed
from oracle.lake_writers import Folder
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable, Table

from backfill_cli.contracts import TableSpec
from backfill_cli.errors import Fatal
from backfill_cli.upstreams.iceberg import connector
from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

ROW = pa.table({"id": pa.array([1], pa.int64())})


def opened(table: Path) -> IcebergUpstream:
    options = connector.options.model_validate({"type": "iceberg", "table": str(table)})
    upstream: Any = connector.open(options, [TableSpec("t", ("id",))])
    return upstream  # type: ignore[no-any-return]


def test_neither_the_running_job_nor_the_next_process_follows_a_copy_whatever_its_version(tmp_path: Path) -> None:
    """The files of its metadata have the same names, and its snapshots the same sequence numbers."""
    place, io = tmp_path / "t", PyArrowFileIO()
    made = Folder(place).created(ROW.schema)
    made.append(ROW)
    shutil.copytree(place, tmp_path / "older")
    made.append(ROW)
    upstream = opened(place)
    pin = upstream.pin()
    upstream.restore(pin)
    assert upstream.observe(pin.position, False).pending == ()
    shutil.rmtree(place)
    shutil.copytree(tmp_path / "older", place)
    found = StaticTable.from_metadata(str(place / "metadata" / "v2.metadata.json"))
    writer = Folder(place)
    writer._version = 2
    copy = Table(("t",), found.metadata, found.metadata_location, io, writer)
    for _ in range(3):
        for one in (upstream, opened(place)):
            one.restore(pin)
            with pytest.raises(Fatal, match="is no longer an ancestor of the newest one") as refused:
                one.observe(pin.position, False)
        copy.append(ROW)
    with typed(refused.value) as hint:
        hint.says("go back to it, if it still exists")
        hint.says("else drop the job and start over")
        again = opened(place)
        assert again.observe(again.pin().position, True).pending == ()
