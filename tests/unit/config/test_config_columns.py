"""`keep = "columns"` in a config: what the table's transform and target become, and what is refused by name."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hint_typed import typed
from sink_contract import a_table

from backfill_cli.config import JobConfig, from_stored, load
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.columns import require_kept, require_used
from backfill_cli.errors import ConfigError, UsageError
from backfill_cli.model.position import START, Position
from backfill_cli.model.schema import field, schema_text
from backfill_cli.model.upstream import Pin

CONFIG = """
[job]
name = "shop"
[upstream]
type = "files"
snapshot = {{ path = "data/{{table}}", format = "parquet" }}
{changes}
[[tables]]
name = "public.orders"
key = ["id", "Day"]
keep = "columns"
{orders}
[[tables]]
name = "customers"
key = ["id"]
[sink]
type = "{sink}"
path = "warehouse.duckdb"
{more}
"""
BY_STATUS = '''
[[derived]]
name = "by_status"
key = ["status"]
sql = """
SELECT o.status, max(o.day) AS last, count(c.name) AS n
FROM orders o JOIN customers c ON c.id = o.customer GROUP BY 1
"""
'''
SUMS = """
[[derived]]
name = "sums"
key = ["status"]
sql = "SELECT Status, sum(amount) AS a FROM _backfill_columns_orders GROUP BY 1"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "job.toml"


def config(
    file: Path,
    *more: str,
    orders: str = "",
    sink: str = "duckdb",
    had: JobConfig | None = None,
    changes: str = "",
) -> JobConfig:
    file.write_text(CONFIG.format(changes=changes, orders=orders, sink=sink, more="".join(more)))
    sections = {} if had is None else {one["name"]: one for one in had.tree["tables"]}
    return load(file, of_job=lambda name: {"shop": sections}[name])


def selected(told: JobConfig) -> Any:
    return told.transform_of("public.orders").select


def test_only_the_key_and_the_columns_that_selects_use_are_kept(file: Path) -> None:
    told = config(file, BY_STATUS)
    assert selected(told) == ["`id`", "`Day`", "`status`", "`customer`"]
    assert told.table("public.orders").sink_name == "public._backfill_columns_orders"
    assert told.table("customers").sink_name == "customers"
    assert told.transform_of("customers").select is None
    assert from_stored(told.stored()) == told
    assert selected(config(file, BY_STATUS, SUMS)) == ["`id`", "`Day`", "`status`", "`customer`", "`amount`"]
    named = config(file, SUMS.replace("_backfill_columns_orders", "raw.x"), orders='target = "raw.x"')
    assert named.table("public.orders").sink_name == "raw.x"
    assert selected(named) == ["`id`", "`Day`", "`Status`", "`amount`"]
    needed = told.table_specs()[0].wanted
    assert [needed.needs(one) for one in ("id", "DAY", "customer", "amount")] == [True, True, True, False]


def test_a_star_keeps_all_columns(file: Path) -> None:
    all_ = SUMS.replace("Status, sum(amount) AS a", "*").replace(" GROUP BY 1", "")
    assert selected(config(file, all_)) is None
    assert selected(config(file, all_, BY_STATUS)) is None


def test_a_condition_of_the_table_stays(file: Path) -> None:
    own = config(file, SUMS, orders="transform = { where = \"note <> 'x'\" }")
    common = config(file, SUMS, "[transform]\nwhere = \"note <> 'x'\"\n")
    for told in (own, common):
        shape = told.transform_of("public.orders")
        assert (shape.select, shape.where) == (["`id`", "`Day`", "`Status`", "`amount`"], "note <> 'x'")
    assert common.transform_of("customers").select is None


def test_a_column_is_the_one_that_the_sinks_sql_means(file: Path) -> None:
    def kept(sink: str, *names: str) -> list[str]:
        sections = CONFIG.format(
            changes="", orders="", sink=sink, more=SUMS + BY_STATUS.replace("o.day", 'o."Tax", o.STATUS')
        )
        file.write_text(
            sections.replace('path = "warehouse.duckdb"', 'dsn = "postgresql:///x"')
            if sink[0] == "p"
            else sections
        )
        told = load(file)
        columns = {name: field(name, "string") for name in ("id", "Day", "customer", *names)}
        require_used(told, Pin(START, None, None, (), {"public.orders": schema_text(columns)}))
        return selected(told)  # type: ignore[no-any-return]

    with pytest.raises(UsageError, match="no column 'status' but 'Status', which a derived table uses") as refused:
        kept("postgres", "Status", "amount", "Tax")
    assert 'write "Status" in derived.sql' in str(refused.value.hint)
    with pytest.raises(UsageError, match="no column 'status', which a derived table uses") as refused:
        kept("postgres", "amount", "Tax")
    with typed(refused.value) as hint:
        hint.says("correct derived.sql")
        assert kept("postgres", "status", "amount", "Tax")[2:4] == ["`status`", "`amount`"]
    with pytest.raises(UsageError, match="no column 'Tax' but 'tax'"):
        kept("postgres", "status", "amount", "tax")
    with pytest.raises(UsageError, match="no column 'amount', which"):
        kept("postgres", "status", "Tax")
    assert kept("duckdb", "STATUS", "amount", "tax")[2:4] == ["`Status`", "`amount`"]


def test_what_the_job_keeps_stays_where_it_suffices(file: Path) -> None:
    job = config(file, BY_STATUS, SUMS)
    for derived in ((SUMS, BY_STATUS), (BY_STATUS,), (SUMS,), ()):
        assert config(file, *derived, had=job).tree["tables"] == job.tree["tables"]
    more = SUMS.replace("amount", "tax")
    assert selected(config(file, more, had=job)) == [*selected(job), "`tax`"]
    star = config(file, SUMS.replace("Status, sum(amount) AS a", "*").replace(" GROUP BY 1", ""))
    assert selected(config(file, BY_STATUS, had=star)) is None


def test_a_column_that_a_job_does_not_keep_is_refused_with_the_commands_that_keep_it(file: Path) -> None:
    """tests/crash/test_kill_columns.py types them one after the other."""
    job = config(file, SUMS)
    with pytest.raises(UsageError, match="'shop' does not keep customer of table 'public") as refused:
        require_kept(definition(job), config(file, SUMS, BY_STATUS, had=job), "job.toml")
    with typed(refused.value) as hint:
        assert [" ".join(words) for words in hint.commands()][:4] == [
            "remove shop --derived sums --with-rows --confirm shop",
            "remove shop --table public.orders --with-rows --confirm shop",
            "add shop --table public.orders --config job.toml",
            "add shop --derived sums --derived by_status --config job.toml",
        ]


def definition(job: JobConfig, strategy: str = "snapshot") -> JobDefinition:
    """Of a job of this config, whose tables have logs of their own."""
    pin = Pin(Position.of({"public.orders": 3, "customers": 4}), None, None, ())
    tables = tuple(a_table(name) for name in ("public.orders", "customers"))
    return JobDefinition("shop", job.stored(), "{}", pin, "forever", strategy, tables)


def test_all_that_a_job_does_not_keep_is_named_and_its_tables_are_read_anew_one_by_one(file: Path) -> None:
    """tests/crash/test_kill_columns.py types commands of one."""
    kept = 'key = ["id"]\nkeep = "columns"'
    cities = "[[derived]]\nname = 'cities'\nkey = ['city']\nsql = 'SELECT city FROM customers GROUP BY 1'\n"

    def both(*derived: str, had: JobConfig | None = None) -> JobConfig:
        config(file, *derived)
        file.write_text(file.read_text().replace('key = ["id"]\n[sink]', f"{kept}\n[sink]"))
        sections = {} if had is None else {one["name"]: one for one in had.tree["tables"]}
        return load(file, of_job=lambda name: {"shop": sections}[name])

    job = both(SUMS, cities)
    with pytest.raises(UsageError) as refused:
        require_kept(definition(job), both(SUMS, cities, BY_STATUS, had=job), "job.toml")
    said = "does not keep customer of table 'public.orders' and name of table 'customers', which its derived"
    assert said in str(refused.value)
    with typed(refused.value) as hint:
        assert [" ".join(words) for words in hint.commands()][:6] == [
            "remove shop --derived sums --derived cities --with-rows --confirm shop",
            "remove shop --table public.orders --with-rows --confirm shop",
            "add shop --table public.orders --config job.toml",
            "remove shop --table customers --with-rows --confirm shop",
            "add shop --table customers --config job.toml",
            "add shop --derived sums --derived cities --derived by_status --config job.toml",
        ]


@pytest.mark.parametrize(
    ("strategy", "epoch", "why"),
    [
        ("snapshot", None, "it has no other table, which would stay meanwhile"),
        ("snapshot", ', epoch = "v"', "its tables share one log of changes, which was read for these alone"),
        ("chain", "", "the logs of its tables are taken into one spool (strategy chain)"),
    ],
)
def test_a_table_that_could_not_come_back_is_not_told_to_leave(
    file: Path, strategy: str, epoch: str | None, why: str
) -> None:
    changes = f'changes = {{ path = "c/{{table}}", format = "change-feed", file_format = "json"{epoch or ""} }}'
    job = config(file, SUMS, changes=changes)
    after = config(file, SUMS, BY_STATUS, had=job, changes=changes)
    had = definition(job, strategy)
    if epoch is None:
        had = replace(had, tables=had.tables[:1])
    with pytest.raises(UsageError, match="does not keep customer of table 'public") as refused:
        require_kept(had, after, "job.toml")
    assert refused.value.message.endswith(f"would use, and cannot read table 'public.orders' anew: {why}")
    with typed(refused.value.naming("shop", with_rows=True)) as hint:
        assert hint.commands() == [["drop", "shop", "--with-rows", "--confirm", "shop"]]


def test_a_job_that_kept_all_of_the_table_is_another_one(file: Path) -> None:
    file.write_text(CONFIG.format(changes="", orders="", sink="duckdb", more=SUMS).replace('keep = "columns"', ""))
    whole = load(file)
    assert selected(config(file, SUMS, had=whole)) == ["`id`", "`Day`", "`Status`", "`amount`"]


@pytest.mark.parametrize(
    ("derived", "orders", "sink", "more", "said"),
    [
        ("", "", "duckdb", "", "no derived table reads public.orders: leave keep out, or the table"),
        (SUMS, 'transform = { select = ["id", "Day"] }', "duckdb", "", "leave keep out, or transform.select"),
        (SUMS, "", "duckdb", '[transform]\nselect = ["*"]\n', "[transform] has a select"),
        (SUMS, 'live = "orders"', "duckdb", "", "people query its table, as `live` says"),
        (SUMS, "", "kafka", "", "only a sink that keeps derived tables has it"),
    ],
)
def test_where_it_cannot_be_it_is_refused_by_name(
    file: Path, derived: str, orders: str, sink: str, more: str, said: str
) -> None:
    text = CONFIG.format(changes="", orders=orders, sink=sink, more=derived + more)
    file.write_text(
        text.replace('path = "warehouse.duckdb"', 'bootstrap_servers = "b:1"') if sink == "kafka" else text
    )
    with pytest.raises(ConfigError, match=re.escape("tables[0].keep: ")) as refused:
        load(file)
    assert said in str(refused.value)


def test_a_table_with_an_own_transform_goes_by_it_and_not_by_the_common_one(file: Path) -> None:
    told = config(file, SUMS, '[transform]\nselect = ["*"]\n', orders="transform = {}")
    assert selected(told) == ["`id`", "`Day`", "`Status`", "`amount`"]
    assert told.transform_of("customers").select == ["*"]


def test_another_word_is_no_value(file: Path) -> None:
    file.write_text(CONFIG.format(changes="", orders="", sink="duckdb", more=SUMS).replace('"columns"', '"rows"'))
    with pytest.raises(ConfigError, match=re.escape("tables[0].keep: must be 'columns'")):
        load(file)
