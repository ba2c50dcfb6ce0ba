"""Options with values by table: what a table brings to the config that it joins, and takes along as it leaves."""

from pathlib import Path
from typing import Any

import pytest

from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import JobDefinition
from backfill_cli.engine.job.select import require_same
from backfill_cli.errors import UsageError
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import Pin

TABLES = {"a": "id BIGINT", "b": "id BIGINT, n INT", "c": "id BIGINT, t STRING"}


def topics(folder: Path, *names: str, more: str = "", topics: str = "", schema: str = "") -> JobConfig:
    """A job over a topic for each table, by name."""
    told = topics or "{ " + ", ".join(f'{one} = "shop.{one}"' for one in names) + " }"
    ddl = schema or "{ " + ", ".join(f'{one} = "{TABLES[one]}"' for one in names) + " }"
    tables = "".join(f'[[tables]]\nname = "{one}"\nkey = ["id"]\n' for one in names)
    (folder / "job.toml").write_text(
        f'[job]\nname = "shop"\n[upstream]\ntype = "kafka"\nbootstrap_servers = "h:1"\ntopics = {told}\n{more}\n'
        f'[upstream.value]\nformat = "rows"\nschema = {ddl}\n{tables}[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
    )
    return load(folder / "job.toml")


def by_name(config: JobConfig) -> tuple[Any, Any]:
    return config.tree["upstream"]["topics"], config.tree["upstream"]["value"]["schema"]


def test_a_table_joins_with_its_own_values_and_leaves_with_them(tmp_path: Path) -> None:
    whole = topics(tmp_path, "a", "b", "c")
    two = whole.of_tables({"a", "b"})
    assert two == topics(tmp_path, "a", "b")
    brought = whole.options_by_table("c")
    assert brought == {"topics": {"c": "shop.c"}, "value.schema": {"c": TABLES["c"]}}
    section = {"name": "c", "key": ["id"]}
    assert by_name(two.with_table(section, brought)) == by_name(whole)
    assert two.with_table(section, brought).of_tables({"a", "b"}) == two


def test_one_text_for_all_tables_is_each_tables_own_once_another_has_a_different_one(tmp_path: Path) -> None:
    told = {"topics": '"shop.{table}"', "schema": '"id BIGINT"'}
    one = topics(tmp_path, "a", **told)
    assert one.options_by_table("a") == {}
    assert by_name(one.of_tables({"a"})) == ("shop.{table}", "id BIGINT")
    assert by_name(one.with_table({"name": "b", "key": ["id"]}, {})) == ("shop.{table}", "id BIGINT")
    brought = {"topics": {"b": "other"}, "value.schema": {"b": "id BIGINT, n INT"}}
    both = one.with_table({"name": "b", "key": ["id"]}, brought)
    assert by_name(both) == ({"a": "shop.a", "b": "other"}, {"a": "id BIGINT", "b": "id BIGINT, n INT"})


def test_partitions_are_of_their_table(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text("""
[job]
name = "shop"
[upstream.snapshot]
type = "files"
path = "data/{table}"
format = "json"
schema = { a = "id BIGINT", "ab" = "id INT" }
[upstream.changes]
type = "kafka"
bootstrap_servers = "h:1"
topics = { a = "x", "ab" = "y" }
from = { "a/0" = 3, "ab/0" = 4, "ab/1" = 5 }
[[tables]]
name = "a"
key = ["id"]
[[tables]]
name = "ab"
key = ["id"]
[sink]
type = "duckdb"
path = "w.duckdb"
""")
    config = load(tmp_path / "job.toml")
    assert config.options_by_table("ab") == {
        "snapshot.schema": {"ab": "id INT"},
        "changes.topics": {"ab": "y"},
        "changes.from": {"ab/0": 4, "ab/1": 5},
    }
    assert config.of_tables({"a"}).tree["upstream"]["changes"]["from"] == {"a/0": 3}


@pytest.mark.parametrize("more", ["", 'isolation = "read_uncommitted"'])
def test_a_file_with_another_tables_values_is_offered_as_the_command_unless_more_differs(
    tmp_path: Path, more: str
) -> None:
    had = topics(tmp_path, "a", "b")
    job = JobDefinition("shop", had.stored(), "{}", "source", "forever", 1, Pin(Position(), None, None, ()), ())
    with pytest.raises(UsageError) as refused:
        require_same(job, topics(tmp_path, "a", "c", more=more))
    verbs = [one.words[0] for one in refused.value.hint.commands]
    assert verbs == (["add", "remove"] if not more else []), "another isolation reads other records"
