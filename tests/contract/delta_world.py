"""A Delta table written without Spark or a library: files by pyarrow, commits according to the protocol.

What a test expects of an upstream comes from here, so it must not use the code under test.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = dict[str, Any]
Change = tuple[str, Row | None, Row | None]
SPARK = {"int64": "long", "int32": "integer", "string": "string", "double": "double"}


@dataclass
class HandWritten:
    """A table of one writer: `commit` is one version; rows are kept as a list, files are never shared."""

    path: Path
    columns: pa.Schema
    properties: dict[str, str] = field(default_factory=lambda: {"delta.enableChangeDataFeed": "true"})
    at_ms: int = 1_700_000_000_000
    version: int = -1
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    files: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.files.values() for row in rows]

    def create(self, parts: Iterable[Sequence[Row]] = ()) -> None:
        (self.path / "_delta_log").mkdir(parents=True)
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        self._commit("CREATE TABLE", [protocol, self.metadata()])
        parts = list(parts)
        if parts:
            self._commit("WRITE", [self._add(list(part)) for part in parts])

    def metadata(self) -> dict[str, Any]:
        fields = [
            {"name": f.name, "type": SPARK[str(f.type)], "nullable": True, "metadata": {}} for f in self.columns
        ]
        schema = json.dumps({"type": "struct", "fields": fields})
        told = {"id": self.id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        return {"metaData": {**told, "partitionColumns": [], "configuration": self.properties, "createdTime": 0}}

    def change(self, changes: Sequence[Change], key: str = "id") -> None:
        """One version that rewrites the table as one file, with a file of its changes."""
        rows = {row[key]: row for row in self.rows}
        feed: list[Row] = []
        for op, before, after in changes:
            if before is not None:
                old = rows.pop(before[key], before)
                feed.append({**old, "_change_type": "update_preimage" if op == "update" else "delete"})
            if after is not None:
                rows[after[key]] = after
                feed.append({**after, "_change_type": "update_postimage" if op == "update" else "insert"})
        removed = [self._remove(name) for name in list(self.files)]
        cdc = self._write("_change_data", feed, self.columns.append(pa.field("_change_type", pa.string())))
        feed_of = {"cdc": {"path": cdc, "partitionValues": {}, "size": self._size(cdc), "dataChange": False}}
        self._commit("MERGE", [*removed, self._add(list(rows.values())), feed_of])

    def alter(self, operation: str, columns: pa.Schema | None = None, **properties: str) -> None:
        self.columns = columns or self.columns
        self.properties = {**self.properties, **properties}
        self._commit(operation, [self.metadata()])

    def compact(self) -> None:
        rows, removed = self.rows, [self._remove(name, False) for name in list(self.files)]
        self._commit("OPTIMIZE", [*removed, self._add(rows, False)])

    def _add(self, rows: list[Row], change: bool = True) -> dict[str, Any]:
        path = self._write("data", rows, self.columns)
        self.files[path] = rows
        stats: dict[str, Any] = {"numRecords": len(rows), "minValues": {}, "maxValues": {}, "nullCount": {}}
        for name in self.columns.names:
            values = [row[name] for row in rows if row.get(name) is not None]
            stats["nullCount"][name] = len(rows) - len(values)
            if values:
                stats["minValues"][name], stats["maxValues"][name] = min(values), max(values)
        told = {"path": path, "partitionValues": {}, "size": self._size(path), "modificationTime": self.at_ms}
        return {"add": {**told, "dataChange": change, "stats": json.dumps(stats)}}

    def _remove(self, path: str, change: bool = True) -> dict[str, Any]:
        del self.files[path]
        told = {"path": path, "deletionTimestamp": self.at_ms, "dataChange": change, "size": self._size(path)}
        return {"remove": {**told, "extendedFileMetadata": True, "partitionValues": {}}}

    def _write(self, folder: str, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> str:
        path = f"{folder}/{uuid.uuid4().hex}.parquet"
        (self.path / folder).mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(list(rows), schema), self.path / path)
        return path

    def _size(self, path: str) -> int:
        return (self.path / path).stat().st_size

    def _commit(self, operation: str, actions: Sequence[Mapping[str, Any]]) -> None:
        self.version, self.at_ms = self.version + 1, self.at_ms + 1000
        info = {"commitInfo": {"timestamp": self.at_ms, "operation": operation, "operationParameters": {}}}
        text = "".join(json.dumps(action) + "\n" for action in [info, *actions])
        file = self.path / "_delta_log" / f"{self.version:020d}.json"
        file.write_text(text)
        os.utime(file, (self.at_ms / 1000, self.at_ms / 1000))  # readers take this as the version's time
