"""What cannot be pinned or followed in a lake, and the way on; deltalake and pyiceberg write, without Spark."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hint_typed import typed
from oracle.lake_writers import Folder
from pyiceberg.table import Table

from backfill_cli.contracts import Source, TableSpec
from backfill_cli.errors import Fatal, HistoryGone, UsageError
from backfill_cli.lake.iceberg.types import wanted
from backfill_cli.model.schema import names_of
from backfill_cli.upstreams.delta import connector as delta
from backfill_cli.upstreams.iceberg import connector as iceberg

FEED = {"delta.enableChangeDataFeed": "true"}


def opened(form: str, table: Path, version: object = "latest") -> Source:
    connector = {"delta": delta, "iceberg": iceberg}[form]
    options = connector.options.model_validate({"type": form, "table": str(table), "version": version})
    made: Source = connector.open(options, [TableSpec("t", ("id",))])
    return made


def rows(*ids: int, **more: str) -> pa.Table:
    texts = {name: pa.array([value] * len(ids), pa.string()) for name, value in more.items()}
    return pa.table({"id": pa.array(ids, pa.int64()), **texts})


def appended(path: Path, times: int) -> Table:
    table = Folder(path).created(rows().schema)
    for number in range(times):
        table.append(rows(number))
    return table


def test_a_column_that_deltas_change_feed_hides_is_called_otherwise_in_a_copy(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), rows(1, _commit_version="x"), configuration=FEED)
    with pytest.raises(UsageError, match="'_commit_version' has the name of a column of Delta's") as refused:
        opened("delta", tmp_path / "t").pin()
    with typed(refused.value) as hint:
        hint.says("follow a copy of the table in which the column has another name")
        write_deltalake(str(tmp_path / "copy"), rows(1, version="x"), configuration=FEED)
        assert names_of(opened("delta", tmp_path / "copy").pin().schema["t"]) == ["id", "version"]


def test_a_column_that_has_a_name_of_icebergs_own_is_renamed(tmp_path: Path) -> None:
    table = Folder(tmp_path / "t").created(rows(_file="x").schema)
    table.append(rows(1, _file="x"))
    with pytest.raises(UsageError, match="'_file' has the name of a column of Iceberg's own") as refused:
        opened("iceberg", tmp_path / "t").pin()
    with typed(refused.value) as hint:
        (statement,) = hint.statements()
        assert statement == "ALTER TABLE `lake`.`t` RENAME COLUMN `_file` TO another_name"
        with table.update_schema() as update:
            update.rename_column("_file", "another_name")
        table.append(rows(2, another_name="y"))
        assert names_of(opened("iceberg", tmp_path / "t").pin().schema["t"]) == ["id", "another_name"]


def test_of_a_snapshot_that_was_rolled_back_no_changes_follow_but_those_of_the_newest_do(tmp_path: Path) -> None:
    table = appended(tmp_path / "t", 2)
    first, second = (one.snapshot_id for one in table.metadata.snapshots)
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(rows(3))
    with pytest.raises(HistoryGone, match="is not an ancestor of the newest one") as refused:
        opened("iceberg", tmp_path / "t", second).pin()
    with typed(refused.value) as hint:
        pin = opened("iceberg", tmp_path / "t", hint.settings()["upstream.version"]).pin()
        assert str(table.metadata.current_snapshot_id) in str(pin.position.get("t"))


def test_snapshots_that_format_version_1_wrote_have_no_order_and_those_after_them_do(tmp_path: Path) -> None:
    table = appended(tmp_path / "t", 2)
    while (ids := [one.snapshot_id for one in table.metadata.snapshots])[-2] < ids[-1]:
        table.append(rows(3))
    newest = max((tmp_path / "t" / "metadata").glob("v*.json"), key=lambda file: int(file.name[1:].split(".")[0]))
    upgraded = json.loads(newest.read_text())
    for one in upgraded["snapshots"]:
        one["sequence-number"] = 0
    newest.write_text(json.dumps(upgraded))
    before = opened("iceberg", tmp_path / "t", ids[-2])
    with pytest.raises(Fatal, match="it was written in format version 1") as refused:
        before.observe(before.pin().position, True)
    with typed(refused.value) as hint:
        after = opened("iceberg", tmp_path / "t", hint.settings()["upstream.version"])
        begun = after.pin().position
        table.append(rows(4))
        assert [epoch.rows for epoch in after.observe(begun, True).pending] == [1]


def test_a_column_that_an_iceberg_table_of_ours_cannot_have_is_renamed_in_the_transform() -> None:
    def schema(name: str) -> str:
        field = {"name": name, "type": "long", "nullable": True, "metadata": {}}
        return json.dumps({"type": "struct", "fields": [field]})

    with pytest.raises(UsageError, match="a column cannot be called '_Pos'") as refused:
        wanted("t", schema("_Pos"))
    with typed(refused.value) as hint:
        assert hint.settings() == {"select": ["_Pos AS Pos"]}
        assert list(wanted("t", schema("Pos"))) == ["Pos"]
