"""The files upstream against the suite for upstreams: each format, and an epoch column."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from upstream_contract import UpstreamContract
from upstream_world import TABLE, Row

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.upstreams.files import connector

Change = tuple[str, Row | None, Row | None]
ROW = pa.schema([("id", pa.int64()), ("name", pa.string())])
BLOCK = {
    "type": "struct",
    "fields": [
        {
            "type": "struct",
            "field": side,
            "fields": [{"type": "int64", "field": "id"}, {"type": "string", "field": "name", "optional": True}],
        }
        for side in ("before", "after")
    ],
}


@dataclass
class FilesWorld:
    """Folders of files below `root`. snapshot, changes: formats; kind: of change files; options: of changes."""

    root: Path
    snapshot: str
    changes: str
    kind: str
    block: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    landed: int = 0

    def load(self, splits: Sequence[Sequence[Row]]) -> None:
        folder = self.root / "snapshot"
        folder.mkdir()
        for index, rows in enumerate(splits):
            self._write(folder / f"part {index}.{self.snapshot}", self.snapshot, list(rows), list(ROW.names), 5)
        (self.root / "changes").mkdir()

    def damage(self) -> None:
        (self.root / "snapshot" / f"part 1.{self.snapshot}").unlink()

    def land(self, changes: Sequence[Change]) -> None:
        self.landed += 1
        at_ms = 1_700_000_000_000 + self.landed * 1000
        path = self.root / "changes" / f"{self.landed:06d}.{self.kind}"
        match self.changes:
            case "debezium":
                path.write_text("".join(self._debezium(change, at_ms) + "\n" for change in changes))
            case "dms":
                ops = {"insert": "I", "update": "U", "delete": "D"}
                rows = [
                    {"Op": ops[op], "at": str(at_ms), **(after or before or {})} for op, before, after in changes
                ]
                self._write(path, self.kind, rows, ["Op", "at", "id", "name"])
            case "change-feed":
                self._write(path, self.kind, list(self._feed(changes, at_ms)), [*FEED, "id", "name"])

    def open(self) -> Source:
        text = {} if self.snapshot == "parquet" else {"schema": "id BIGINT, name STRING"}
        options = connector.options.model_validate(
            {
                "snapshot": {"path": str(self.root / "snapshot"), "format": self.snapshot, **text},
                "changes": {"path": str(self.root / "changes"), "format": self.changes, **self.options},
            }
        )
        return connector.open(options, [TableSpec(TABLE, ("id",))])

    def _debezium(self, change: Change, at_ms: int) -> str:
        op, before, after = change
        source = {"ts_ms": at_ms, "tx": self.landed}
        event = {"op": op[0].replace("i", "c"), "before": before, "after": after, "source": source}
        return json.dumps({"schema": BLOCK, "payload": event} if self.block else event)

    def _feed(self, changes: Sequence[Change], at_ms: int) -> Any:
        for op, before, after in changes:
            marks = {"_commit_version": self.landed, "_commit_timestamp": at_ms}
            if op == "update":
                yield {"_change_type": "update_preimage", **marks, **(before or {})}
                yield {"_change_type": "update_postimage", **marks, **(after or {})}
            else:
                yield {"_change_type": op, **marks, **(after or before or {})}

    def _write(self, path: Path, kind: str, rows: list[Row], columns: list[str], group: int = 1000) -> None:
        if kind == "parquet":
            types = {"id": pa.int64(), "_commit_version": pa.int64(), "_commit_timestamp": pa.int64()}
            schema = pa.schema([(name, types.get(name, pa.string())) for name in columns])
            pq.write_table(pa.Table.from_pylist(rows, schema), path, row_group_size=group)
        elif kind == "json":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        else:
            self._write_csv(path, rows, columns, path.parent.name == "snapshot" or bool(self.options.get("csv")))

    def _write_csv(self, path: Path, rows: list[Row], columns: list[str], header: bool) -> None:
        """NULL is empty, all else is quoted: Python's own writer cannot tell NULL from an empty string."""
        lines = [",".join(columns)] if header else []
        for row in rows:
            quoted = (str(row[name]).replace('"', '""') for name in columns)
            lines.append(
                ",".join("" if row[n] is None else f'"{q}"' for n, q in zip(columns, quoted, strict=True))
            )
        path.write_text("".join(f"{line}\n" for line in lines))


FEED = ("_change_type", "_commit_version", "_commit_timestamp")


class TestParquetAndDebezium(UpstreamContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "parquet", "debezium", "json")


class TestParquetAndDebeziumWithItsSchemaBlock(UpstreamContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "parquet", "debezium", "json", block=True)


class TestParquetAndDebeziumByAnEpochColumn(UpstreamContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "parquet", "debezium", "json", options={"epoch": "source.tx"})


class TestCsvAndDmsCsv(UpstreamContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "csv", "dms", "csv", options={"time_column": "at"})


class TestParquetAndDmsParquet(UpstreamContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "parquet", "dms", "parquet", options={"time_column": "at"})


class TestParquetAndChangeFeedParquet(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "parquet", "change-feed", "parquet", options={"epoch": "_commit_version"})


class TestJsonAndChangeFeedJson(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "json", "change-feed", "json")


class TestCsvAndChangeFeedCsv(UpstreamContract):
    keeps_order_in_an_epoch = False

    @pytest.fixture
    def world(self, tmp_path: Path) -> FilesWorld:
        return FilesWorld(tmp_path, "csv", "change-feed", "csv", options={"csv": {"header": True}})
