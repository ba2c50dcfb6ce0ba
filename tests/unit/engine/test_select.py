"""The capabilities of upstream and sink are checked before anything is read or written."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.config import load
from backfill_cli.config.sections import Table, Transform
from backfill_cli.contracts import (
    Capabilities,
    ConsumableLog,
    Current,
    JobDefinition,
    Partitions,
    Pinned,
    TableSpec,
)
from backfill_cli.engine.job import checks
from backfill_cli.engine.job.checks import plan
from backfill_cli.engine.job.select import (
    choose,
    constraints,
    edited,
    nothing_follows,
    require_keys,
    require_whole,
)
from backfill_cli.errors import UsageError
from backfill_cli.model.position import START, Position
from backfill_cli.model.upstream import Pin
from backfill_cli.upstreams import files


class Taking(ConsumableLog):
    """A log that can leave out some columns of table t."""

    def __init__(self, *lacking: str) -> None:
        self._lacking = frozenset(lacking)

    def may_lack(self, table: str) -> frozenset[str]:
        return self._lacking if table == "t" else frozenset()

    def take(self, *_: Any) -> Any: ...


ALL = Capabilities(Pinned(), before_images=True, one_log=True)
LOG = replace(ALL, reads=Partitions(("partition", "offset")))
NOW = replace(ALL, reads=Current(Taking()))


def test_how_rows_are_read_decides_the_strategy_and_every_one_needs_a_log_that_is_kept() -> None:
    assert (choose("auto", ALL).strategy, choose("auto", LOG).strategy) == ("snapshot", "source")
    assert choose("auto", NOW).strategy == choose("arrangement", NOW).strategy == "arrangement"
    for upstream in (ALL, LOG, NOW):
        with pytest.raises(UsageError, match="does not keep its changes") as refused:
            choose("auto", replace(upstream, keeps_log=False))
        with typed(refused.value) as hint:
            hint.says("use an upstream whose change log can be read again")
            choose("auto", upstream)


@pytest.mark.parametrize("one_log", [True, False])
@pytest.mark.parametrize("transactional", [True, False])
def test_constraints_hold_where_one_log_orders_tables_that_commit_together(
    one_log: bool, transactional: bool
) -> None:
    assert constraints("snapshot", replace(ALL, one_log=one_log), transactional)[0] == (one_log and transactional)


@pytest.mark.parametrize("before_images", [True, False])
@pytest.mark.parametrize("immutable", [True, False])
@pytest.mark.parametrize("partitioned", [True, False])
def test_a_key_change_that_cannot_be_followed_is_refused(
    before_images: bool, immutable: bool, partitioned: bool
) -> None:
    upstream = replace(LOG if partitioned else ALL, before_images=before_images)
    tables = [TableSpec("a", ("id",), immutable_key=True), TableSpec("b", ("id",), immutable_key=immutable)]
    if before_images or immutable or partitioned:
        require_keys(tables, upstream)
        return
    with pytest.raises(UsageError, match="table 'b': the change log does not send the old key") as caught:
        require_keys(tables, upstream)
    with typed(caught.value) as hint:
        hint.says("write `immutable_key = true` under its [[tables]]")
        require_keys([replace(table, immutable_key=True) for table in tables], upstream)


def test_plan_refuses_dms_until_the_config_says_that_keys_never_change(tmp_path: Path) -> None:
    config = tmp_path / "job.toml"
    config.write_text(
        f"""
        [job]
        name = "orders"
        [upstream]
        type = "files"
        snapshot = {{ path = "{tmp_path}/snapshot", format = "parquet" }}
        changes = {{ path = "{tmp_path}/changes", format = "dms" }}
        [[tables]]
        name = "orders"
        key = ["id"]
        [sink]
        type = "duckdb"
        path = "{tmp_path}/warehouse.duckdb"
        """
    )
    with pytest.raises(UsageError, match="table 'orders': the change log does not send the old key"):
        plan(load(config), Catalog(tmp_path / "catalog.duckdb"))
    assert not (tmp_path / "warehouse.duckdb").exists()


@pytest.mark.parametrize(
    ("changes", "until", "told"),
    [
        (False, None, "with --until caught-up it ends by itself"),
        (False, "forever", "it ends by itself; backfill stop orders ends this one"),
        (False, "caught-up", None),
        (True, "forever", None),
        (True, None, None),
    ],
)
def test_a_job_without_a_change_side_is_told_that_it_follows_nothing(
    tmp_path: Path, changes: bool, until: str | None, told: str | None
) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    tree = {"snapshot": {"path": str(tmp_path / "a.parquet"), "format": "parquet"}}
    side = {"changes": {"path": str(tmp_path / "changes"), "format": "debezium"}}
    upstream = files._open(
        files.FilesOptions.model_validate(tree | (side if changes else {})), [TableSpec("orders", ("id",))]
    )
    said = list(nothing_follows("orders", upstream.capabilities, until))
    assert (told is None) == (said == [])
    assert all(one.endswith(str(told)) for one in said)


def whole(
    log: ConsumableLog | None, partial: bool, select: list[str] | None = None, where: str | None = None
) -> None:
    shape = Transform(select=select, where=where)
    tables = [Table(name="s", key=["id"]), Table(name="t", key=["id"])]
    config = SimpleNamespace(tables=tables, transform_of=lambda name: shape)
    upstream = SimpleNamespace(capabilities=ALL if log is None else replace(ALL, reads=Current(log)))
    require_whole(config, upstream, SimpleNamespace(capabilities=SimpleNamespace(partial=partial)))  # type: ignore[arg-type]


def test_a_column_that_changes_leave_out_is_refused_where_something_computes_with_it() -> None:
    with pytest.raises(UsageError) as caught:
        whole(Taking("doc", "big"), True, ["id", "upper(big) AS up"])
    assert caught.value.message == (
        "table 't': a change may leave out the value of big, doc if it did not change, "
        "but it is needed by: upper(big) AS up"
    )
    with typed(caught.value) as hint:  # PostgreSQL itself: tests/postgres; then nothing lacks
        assert hint.statements() == ["ALTER TABLE t REPLICA IDENTITY FULL"]
        whole(Taking(), True, ["id", "upper(big) AS up"])
    with pytest.raises(UsageError, match="needed by: where v > 1"):
        whole(Taking("doc"), True, where="v > 1")


def test_a_sink_that_writes_whole_rows_is_refused_what_may_come_without_a_column_that_it_gets() -> None:
    with pytest.raises(UsageError, match="needed by: the sink, which writes whole rows"):
        whole(Taking("doc"), False)
    whole(Taking("doc"), False, ["id", "v"])
    whole(Taking("doc"), True)


def test_whole_rows_and_logs_that_are_read_ask_for_nothing() -> None:
    whole(Taking(), False, ["upper(doc) AS up"], "v > 1")
    whole(None, False, ["upper(doc) AS up"], "v > 1")


def test_a_log_of_several_folders_is_consistent_from_one_place() -> None:
    """`plan` said `10, c-00010.json, c-00010.json`."""

    def told(**cursors: int | str) -> str | None:
        pin = Pin(START, None, Position.of(cursors), ())
        return checks._consistent_from(pin, ["kunden", "orders"])

    assert told(epoch=10, kunden="c-00010.json", orders="c-00010.json") == "10"
    assert told(kunden="c-00010.json", orders="c-00010.json") == "c-00010.json"
    assert told(kunden="c-00010.json", orders="c-00012.json") == "c-00010.json, c-00012.json"
    assert checks._consistent_from(Pin(START, None, None, ()), ["kunden"]) is None


def test_the_chain_is_asked_for_and_keeps_no_constraint_until_it_has_converged() -> None:
    assert choose("chain", NOW).strategy == "chain"
    assert choose("chain", ALL).strategy == "chain"
    assert "chain" not in (choose("auto", NOW).strategy, choose("auto", ALL).strategy)
    assert not constraints("chain", NOW, True)[0]
    assert constraints("chain", ALL, True)[0]
    with pytest.raises(UsageError, match="'chain' does not fit") as refused:
        choose("chain", LOG)
    with typed(refused.value) as hint:
        hint.says('set it to "source", or to "auto"')
        for strategy in ("source", "auto"):
            assert choose(strategy, LOG).strategy == "source"


def test_a_resume_says_that_the_config_was_edited_and_what_uses_it(tmp_path: Path) -> None:
    file = tmp_path / "my job.toml"
    file.write_text(CONFIG)
    before = load(file)
    job = JobDefinition(
        "j", before.stored(), "{}", Pin(START, None, None, ()), "forever", "snapshot", (), str(file)
    )
    assert list(edited(job)) == []
    file.write_text(CONFIG.replace('type = "files"', 'type = "files"\non_error = "quarantine"'))
    (said,) = edited(job)
    assert said.text == f"resume does not read {file}, changed since the last start: upstream.on_error"
    ((verb, name, option, path),) = (one.words for one in said.hint.commands)
    assert (verb, name, option) == ("set", "j", "--config")
    assert list(edited(replace(job, config=load(Path(path)).stored()))) == []
    for left in ("[job", CONFIG.replace('name = "j"', 'name = "other"')):
        file.write_text(left)
        assert list(edited(job)) == []
    file.unlink()
    assert list(edited(job)) == []
    os.mkfifo(file)  # nobody writes to it any more: reading it would never end
    assert list(edited(job)) == []


@pytest.mark.parametrize("staging", ["", 'staging = "staged/here"\n', 'staging = "/staged"\n'])
@pytest.mark.parametrize("path", ["snapshot", "../snapshot", "/data/snapshot"])
def test_a_config_whose_relative_paths_belonged_to_another_folder_was_not_edited(
    tmp_path: Path, staging: str, path: str
) -> None:
    """As a job of an earlier version has it, which was started in another folder than the config's."""
    file = tmp_path / "conf" / "job.toml"
    file.parent.mkdir()
    text = CONFIG.replace('"snapshot"', f'"{path}"').replace('name = "j"\n', f'name = "j"\n{staging}')
    file.write_text(text)
    stored = load(file, tmp_path).stored()
    job = JobDefinition("j", stored, "{}", Pin(START, None, None, ()), "forever", "snapshot", (), str(file))
    assert list(edited(job)) == []
    file.write_text(text.replace("sink.duckdb", "other.duckdb"))
    (said,) = edited(job)
    assert said.text.endswith("sink.path"), said.text
    assert "job.staging" not in said.text


CONFIG = """
[job]
name = "j"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "parquet" }
[[tables]]
name = "t"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
"""
