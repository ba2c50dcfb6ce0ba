"""Which options of a config may change in a job's life, and that changed ones are reported by key."""

from dataclasses import replace
from pathlib import Path

import pytest
from hint_typed import typed

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.engine.job.checks import require_spool_free, require_staging
from backfill_cli.engine.job.ownership import owning, take
from backfill_cli.engine.job.select import changed_keys, require_same, require_same_strategy
from backfill_cli.errors import Held, UsageError
from backfill_cli.model.position import START
from backfill_cli.model.upstream import Pin

CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "parquet" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
"""
_ID = '{"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": true, "metadata": {}}]}'
ORDERS = SinkTable("orders", "orders", ("id",), _ID)


def config(folder: Path, more: str = "") -> JobConfig:
    file = folder / "job.toml"
    file.write_text(CONFIG + more)
    return load(file)


def job(made: JobConfig, strategy: str) -> JobDefinition:
    return JobDefinition("orders", made.stored(), "{}", Pin(START, None, None, ()), "forever", strategy, ())


def test_the_keys_that_differ_from_the_stored_config_are_named_and_no_other(tmp_path: Path) -> None:
    stored = config(tmp_path, '[barrier]\ninterval = "1s"\n[throttle]\nrate = 500\n').stored()
    now = config(tmp_path, '[barrier]\ninterval = "2s"\n[retry]\nlimit = "1h"\n')
    assert sorted(changed_keys(stored, now)) == ["barrier.interval", "retry.limit", "throttle.rate"]
    assert changed_keys(now.stored(), now) == []


@pytest.mark.parametrize(("had", "asks"), [("chain", "auto"), ("snapshot", "chain")])
def test_a_job_keeps_its_strategy(tmp_path: Path, had: str, asks: str) -> None:
    made = config(tmp_path)
    file = tmp_path / "job.toml"
    file.write_text(CONFIG.replace('name = "orders"', f'name = "orders"\nstrategy = "{asks}"', 1))
    upstream = load(file).open_upstream()
    with pytest.raises(UsageError, match=f"exists with strategy '{had}'") as refused:
        require_same_strategy(job(made, had), load(file), upstream)
    with typed(refused.value) as hint:
        again = hint.settings()["job.strategy"]
        file.write_text(CONFIG.replace('name = "orders"', f'name = "orders"\nstrategy = "{again}"', 1))
        require_same_strategy(job(made, had), load(file), upstream)


def test_how_values_are_written_may_be_told_later_and_not_changed(tmp_path: Path) -> None:
    def told(more: str) -> JobConfig:
        changes = f'changes = {{ path = "changes", format = "debezium"{more} }}'
        (tmp_path / "job.toml").write_text(CONFIG.replace("[[tables]]", f"{changes}\n[[tables]]"))
        return load(tmp_path / "job.toml")

    before = job(told(""), "snapshot")
    precise = told(', decimals = "precise", timestamps = "us"')
    require_same(before, precise)
    then = replace(before, config=precise.stored())
    with pytest.raises(UsageError, match="decimals"):
        require_same(then, told(', decimals = "string", timestamps = "us"'))
    with pytest.raises(UsageError, match="decimals"):
        require_same(then, told(""))
    wrong = told(', decimals = "string", timestamps = "ms"')
    require_same(then, wrong, has_read_changes=lambda: False)  # none was read with it: it may be corrected


@pytest.mark.parametrize("said", ["csv = { header = true }", "csv = { multi_line = true }", 'file_format = "csv"'])
def test_how_files_are_written_may_be_corrected_before_one_was_read(tmp_path: Path, said: str) -> None:
    """As the hints of the first change file say."""

    def told(more: str) -> JobConfig:
        changes = f'changes = {{ path = "changes", format = "dms"{more} }}'
        (tmp_path / "job.toml").write_text(CONFIG.replace("[[tables]]", f"{changes}\n[[tables]]"))
        return load(tmp_path / "job.toml")

    before = job(told(""), "snapshot")
    require_same(before, told(f", {said}"), has_read_changes=lambda: False)
    if "csv =" in said:
        with pytest.raises(UsageError, match="csv"):
            require_same(before, told(f", {said}"))
    else:
        require_same(before, told(f", {said}"))  # a name that shows no format was never read


def test_a_spool_that_holds_something_moves_with_its_path_or_the_change_is_refused(tmp_path: Path) -> None:
    def of(path: str) -> JobConfig:
        (tmp_path / "job.toml").write_text(
            CONFIG.replace('name = "orders"', 'name = "orders"\nstrategy = "chain"', 1)
            + f'[spool]\npath = "{tmp_path / path}"\n'
        )
        return load(tmp_path / "job.toml")

    before = job(of("old"), "chain")
    require_same(before, of("new"))  # it holds nothing yet
    entry = tmp_path / "old" / "orders" / "1-a" / "entry.json"
    entry.parent.mkdir(parents=True)
    entry.touch()
    (tmp_path / "old" / "orders" / "owner.json").touch()
    with pytest.raises(UsageError, match=r"spool\.path is now .*new, but the spool is in .*old") as refused:
        require_same(before, of("new"))
    with typed(refused.value) as hint:
        hint.says(f"move {tmp_path}/old/orders to {tmp_path}/new/orders")
        (tmp_path / "new").mkdir()
        (tmp_path / "old" / "orders").rename(tmp_path / "new" / "orders")
        require_same(before, of("new"))


def test_a_start_that_ends_once_it_owns_the_sinks_tables_leaves_no_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink, catalog = config(tmp_path).open_sink(), Catalog(tmp_path / "catalog.duckdb")
    sink.prepare("orders", (ORDERS,), False)

    def interrupted() -> None:
        with owning("orders", catalog, sink):
            take("orders", catalog, sink, None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert sink.owner("orders") is None


def test_a_start_that_ends_because_another_catalog_took_the_tables_leaves_them_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sink, catalog = config(tmp_path).open_sink(), Catalog(tmp_path / "catalog.duckdb")
    sink.prepare("orders", (ORDERS,), False)
    other = Catalog(tmp_path / "other.duckdb").made()
    sink.own("orders", other, None)
    with pytest.raises(Held), owning("orders", catalog, sink):
        take("orders", catalog, sink, None)
    assert sink.owner("orders") == other


@pytest.mark.parametrize("place", ["file/staging", "x" * 300])
def test_a_staging_folder_that_cannot_be_made_gets_another_name(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"job\.staging .*(file|too long)") as refused:
        require_staging(str(tmp_path / place))
    with typed(refused.value) as hint:
        hint.says("folder")
        require_staging(str(tmp_path / "another"))


def test_a_spool_of_another_catalogs_job_is_left_to_it(tmp_path: Path) -> None:
    def of(path: str) -> JobConfig:
        (tmp_path / "job.toml").write_text(
            CONFIG.replace('name = "orders"', 'name = "orders"\nstrategy = "chain"', 1)
            + f'[spool]\npath = "{tmp_path / path}"\n'
        )
        return load(tmp_path / "job.toml")

    (tmp_path / "old" / "orders").mkdir(parents=True)
    (tmp_path / "old" / "orders" / "owner.json").touch()
    with pytest.raises(UsageError, match="holds the spool of another catalog's job 'orders'") as refused:
        require_spool_free(of("old"))
    with typed(refused.value) as hint:
        hint.says("name another folder")
        require_spool_free(of("new"))
