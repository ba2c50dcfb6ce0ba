"""What the Delta sink requires of a folder before it writes, and who can read its files; without Spark."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hint_typed import typed

from backfill_cli.contracts import SinkTable
from backfill_cli.errors import BadData, UsageError
from backfill_cli.lake.delta.edge import Where
from backfill_cli.sinks.delta import DeltaOptions, connector
from backfill_cli.sinks.delta.adopt import _give_to_group, _has_rights_of_its_own, _umask

TABLE = SinkTable(
    "orders",
    "orders",
    ("id",),
    '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}',
)


@pytest.mark.parametrize("kept", ["interval 7 days", None])
def test_a_table_that_may_forget_which_epochs_it_holds_is_refused(tmp_path: Path, kept: str | None) -> None:
    told = {} if kept is None else {"delta.setTransactionRetentionDuration": kept}
    write_deltalake(tmp_path / "orders", pa.table({"id": pa.array([], pa.int64())}), configuration=told)
    sink = connector.open(DeltaOptions(table=f"{tmp_path}/{{table}}"))
    if kept is None:
        sink.check("orders", (TABLE,), False)  # type: ignore[attr-defined]
        return
    with pytest.raises(UsageError, match="keeps the numbers of commits for interval 7 days only") as caught:
        sink.check("orders", (TABLE,), False)  # type: ignore[attr-defined]
    with typed(caught.value) as hint:
        (statement,) = hint.statements()
        assert statement.endswith("UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")
        _without_properties(tmp_path / "orders")  # what the statement does, without a Spark
        sink.check("orders", (TABLE,), False)  # type: ignore[attr-defined]


def _without_properties(table: Path) -> None:
    log = table / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    told = next(one["metaData"] for one in actions if "metaData" in one)
    action = {"metaData": {**told, "configuration": {}}}
    log.with_name(f"{1:020d}.json").write_text(json.dumps(action) + "\n")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("variant", "to_json(`a b`)"),
        ({"type": "array", "elementType": "interval", "containsNull": True}, "CAST(`a b` AS STRING)"),
    ],
)
def test_a_type_that_a_delta_table_does_not_hold_is_cast_in_the_transform(
    tmp_path: Path, kind: object, text: str
) -> None:
    sink = connector.open(DeltaOptions(table=f"{tmp_path}/{{table}}"))
    fields = [*json.loads(TABLE.schema)["fields"], {"name": "a b", "type": kind, "nullable": True, "metadata": {}}]
    with pytest.raises(BadData, match=r"column 'a b' is .*, which this sink's tables cannot hold") as caught:
        sink.check("orders", (_table(fields),), False)  # type: ignore[attr-defined]
    with typed(caught.value) as hint:
        assert hint.settings() == {"select": [f"{text} AS `a b`"]}
        sink.check("orders", (_table([*fields[:1], {**fields[1], "type": "string"}]),), False)  # type: ignore[attr-defined]


def _table(fields: list[dict[str, object]]) -> SinkTable:
    return replace(TABLE, schema=json.dumps({"type": "struct", "fields": fields}))


def test_a_folder_that_is_a_link_is_named_by_itself(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "orders")
    with pytest.raises(UsageError, match="is a symbolic link") as caught:
        connector.open(DeltaOptions(table=f"{tmp_path}/link")).check("orders", (TABLE,), False)  # type: ignore[attr-defined]
    with typed(caught.value) as hint:
        named = str(hint.settings()["sink.table"])
        connector.open(DeltaOptions(table=named)).check("orders", (TABLE,), False)  # type: ignore[attr-defined]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to groups that it is not in")
def test_an_adopted_file_has_the_group_that_its_folder_gives(tmp_path: Path) -> None:
    file, folder = tmp_path / "staged", tmp_path / "table"
    file.touch()
    folder.mkdir()
    own = file.stat().st_gid
    os.chown(folder, -1, 4321)
    _give_to_group(folder, file)
    assert file.stat().st_gid == own, "no setgid: a new file would not have it either"
    folder.chmod(0o775 | stat.S_ISGID)
    _give_to_group(folder, file)
    assert file.stat().st_gid == 4321


def test_the_umask_is_read_and_not_set_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o027)
    try:
        if Path("/proc/self/status").exists():
            with monkeypatch.context() as patch:
                patch.setattr(os, "umask", lambda _mask: pytest.fail("it was set"))
                assert _umask() == 0o027
        assert _umask() == 0o027
    finally:
        os.umask(before)


def test_a_folder_with_a_default_acl_gives_rights_that_a_link_would_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Where.of(str(tmp_path), "")
    assert not _has_rights_of_its_own(where)
    monkeypatch.setattr(os, "listxattr", lambda _path: ["user.x", "system.posix_acl_default"], raising=False)
    assert _has_rights_of_its_own(where)
