"""What writes the tables that the oracle gives to the product: deltalake and pyiceberg, nothing of ours."""

import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.expressions import In
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import update_table_metadata
from pyiceberg.transforms import IdentityTransform

PARTS = 3
"""Commits that a table begins with, each a file that reaches over all keys."""
BEGIN: dict[str, int | str] = {"delta": PARTS - 1, "iceberg": "begin"}
"""The version after them."""
FEED = {"delta.enableChangeDataFeed": "true"}


class DeltaWriter:
    """A table with a change data feed. Each call is one commit; a change of two kinds is two."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._path = str(path)

    def append(self, rows: pa.Table) -> None:
        write_deltalake(self._path, rows, mode="append", configuration=FEED)

    def begins(self) -> None:
        """The version's number says it."""

    def change(self, moved: Mapping[int, int], landed: pa.Table, put: pa.Table, gone: Sequence[int]) -> None:
        """moved: keys that get others, in one commit. put: rows that are there then, whatever was. gone: keys."""
        if moved:
            cases = " ".join(f"WHEN {key} THEN {to}" for key, to in moved.items())
            keys = ", ".join(map(str, moved))
            DeltaTable(self._path).update({"id": f"CASE id {cases} END"}, predicate=f"id IN ({keys})")
        nothing = [pa.nulls(len(gone), field.type) for field in put.schema][1:]
        deleted = pa.Table.from_arrays([pa.array(gone, pa.int64()), *nothing], schema=put.schema)
        flags = pa.array([False] * put.num_rows + [True] * len(gone), pa.bool_())
        source = pa.concat_tables([put, deleted]).append_column("_gone", flags)
        columns = {name: f"s.{name}" for name in put.column_names}
        merge = DeltaTable(self._path).merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        merge = merge.when_matched_delete("s._gone").when_matched_update(columns, "NOT s._gone")
        merge.when_not_matched_insert(columns, "NOT s._gone").execute()


class Folder(NoopCatalog):
    """A catalog of one table in a folder, as Hadoop tables are: a metadata file a version, and a hint."""

    def __init__(self, path: Path) -> None:
        super().__init__("folder")
        self._path, self._version, self._io = path, 0, PyArrowFileIO()

    def created(self, schema: Schema | pa.Schema, partitions: Sequence[str] = (), **properties: str) -> Table:
        """partitions: the columns by whose values the rows are apart."""
        known = self._convert_schema_if_needed(schema, int(properties.get("format-version", "2")))
        assert isinstance(known, Schema)
        known = assign_fresh_schema_ids(known)
        fields = [
            PartitionField(known.find_field(name).field_id, 1000 + n, IdentityTransform(), name)
            for n, name in enumerate(partitions)
        ]
        spec = PartitionSpec(*fields) if fields else UNPARTITIONED_PARTITION_SPEC
        made = new_table_metadata(known, spec, UNSORTED_SORT_ORDER, str(self._path), properties)
        return Table(("t",), made, self.written(made), self._io, self)

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> CommitTableResponse:
        for one in requirements:
            one.validate(table.metadata)
        made = update_table_metadata(table.metadata, updates)
        return CommitTableResponse(metadata=made, metadata_location=self.written(made))

    def written(self, metadata: TableMetadata) -> str:
        self._version += 1
        file = self._path / "metadata" / f"v{self._version}.metadata.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        ToOutputFile.table_metadata(metadata, self._io.new_output(str(file)))
        (file.parent / "version-hint.text").write_text(str(self._version))
        return str(file)


class IcebergWriter:
    """A copy-on-write table. A change is a snapshot that takes rows away and one that puts rows there."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._table = Folder(path).created(schema)

    def append(self, rows: pa.Table) -> None:
        self._table.append(rows)

    def begins(self) -> None:
        snapshot = self._table.current_snapshot()
        assert snapshot is not None
        self._table.manage_snapshots().create_tag(snapshot.snapshot_id, str(BEGIN["iceberg"])).commit()

    def change(self, moved: Mapping[int, int], landed: pa.Table, put: pa.Table, gone: Sequence[int]) -> None:
        """As DeltaWriter's. landed: the rows that moved, where they are then."""
        rows = pa.concat_tables([landed, put])
        keys = {*moved, *gone, *rows.column("id").to_pylist()}
        with self._table.transaction() as both:
            both.delete(In("id", keys))
            both.append(rows)


WRITERS: dict[str, type[DeltaWriter] | type[IcebergWriter]] = {"delta": DeltaWriter, "iceberg": IcebergWriter}


def odd_column(form: str, path: Path, kind: str) -> None:
    """An empty table with `id` and a column `v` of a type of which libraries write none: its metadata alone."""
    if form == "iceberg":
        metadata = json.loads(new_table_metadata(
            NoopCatalog("n")._convert_schema_if_needed(pa.schema([("id", pa.int64()), ("v", pa.string())])),
            UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(path),
        ).model_dump_json())  # fmt: skip
        metadata |= {"format-version": 3, "next-row-id": 0}
        metadata["schemas"][0]["fields"][1]["type"] = kind
        (path / "metadata").mkdir(parents=True)
        (path / "metadata" / "v1.metadata.json").write_text(json.dumps(metadata))
        (path / "metadata" / "version-hint.text").write_text("1")
        return
    features = {"readerFeatures": ["variantType"], "writerFeatures": ["variantType", "changeDataFeed"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    if kind != "variant":
        protocol = {"minReaderVersion": 1, "minWriterVersion": 4}
    fields = [
        {"name": name, "type": one, "nullable": True, "metadata": {}}
        for name, one in (("id", "long"), ("v", kind))
    ]
    metadata = {
        "id": str(uuid.uuid4()), "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
        "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": FEED,
    }  # fmt: skip
    (path / "_delta_log").mkdir(parents=True)
    actions = [{"protocol": protocol}, {"metaData": metadata}]
    (path / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
