"""Builders shared by the tests of the files upstream: folders of files, and the upstream opened on them."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.pair import Pair
from backfill_cli.model.position import Position
from backfill_cli.upstreams.files import connector

ROW = pa.schema([("id", pa.int64()), ("name", pa.string())])


def parquet(path: Path, ids: Sequence[int] = (1, 2, 3), schema: pa.Schema = ROW, group: int = 1000) -> Path:
    """A Parquet file with these ids; other columns are NULL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([{"id": i} for i in ids], schema), path, row_group_size=group)
    return path


def event(key: int, ms: int = 0, op: str = "c", **more: Any) -> str:
    """One line of Debezium's JSON without a schema block."""
    return json.dumps(
        {"op": op, "before": None, "after": {"id": key, "name": "n"}, "source": {"ts_ms": ms, **more}}
    )


def land(folder: Path, name: str, *lines: str, mtime_s: float | None = None) -> Path:
    """A change file of these lines, complete at once."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f"_{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    if mtime_s is not None:
        os.utime(hidden, (mtime_s, mtime_s))
    hidden.rename(folder / name)
    return folder / name


def opened(
    root: Path, tables: Sequence[str] = ("t",), changes: dict[str, Any] | None = None, **snapshot: Any
) -> Any:
    """The upstream on `root/snapshot` and `root/changes` (Debezium unless told otherwise), nothing read yet."""
    part = "{table}" if len(tables) > 1 else ""
    for name in tables:
        (root / "changes" / (name if part else "")).mkdir(parents=True, exist_ok=True)
    options = connector.options.model_validate(
        {
            "snapshot": {"path": str(root / "snapshot" / part), "format": "parquet", **snapshot},
            "changes": {"path": str(root / "changes" / part), "format": "debezium", **(changes or {})},
        }
    )
    upstream = connector.open(options, [TableSpec(name, ("id",)) for name in tables])
    assert isinstance(upstream, Pair)
    return upstream


def at(name: str, table: str = "t") -> Position:
    return Position.of({table: name})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    parquet(tmp_path / "snapshot" / "a.parquet")
    (tmp_path / "changes").mkdir()
    return tmp_path


def pending(upstream: Any, position: Position) -> list[str]:
    return [str(cursor) for e in upstream.observe(position, False).pending for _, cursor in e.cursors]


def restored(root: Path, pin: Any, memory: str, **changes: Any) -> Any:
    upstream = opened(root, changes=changes or None)
    upstream.restore(pin)
    upstream.recall(memory)
    return upstream
