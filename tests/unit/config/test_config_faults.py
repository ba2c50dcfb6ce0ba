"""Faults of a config file: all at once, each with its path and in plain words."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli
from config_builders import GOOD, Load, config_text
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.config import from_stored, load
from backfill_cli.config.sections import JOB_NAME
from backfill_cli.errors import ConfigError


def faults_of(load_text: Load, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert caught.value.exit_code == 2
    return list(caught.value.faults)


def test_a_spool_without_its_strategy_is_named(load_text: Load) -> None:
    with pytest.raises(ConfigError, match="spool: only strategy chain uses one"):
        load_text(config_text() + '[spool]\nmax_size = "1GB"\n')


def test_all_faults_come_at_once_each_with_its_path(load_text: Load) -> None:
    text = """
        nonsense = 1
        [job]
        name = "../orders"
        stratgy = "auto"
        [upstream]
        type = "files"
        snapshot = { paht = "x", format = "parquet" }
        changes = { format = "debezium" }
        [[tables]]
        name = "orders"
        key = []
        [[tables]]
        name = "Orders"
        key = ["id", "ID"]
        [sink]
        type = "duckbd"
        [transform]
        select = ["id", "rand() AS x"]
        [barrier]
        interval = "1 fortnight"
        [throttle]
        rate = -1
        [spark]
        master = "local"
        remote = "sc://host"
    """
    assert sorted(faults_of(load_text, text)) == sorted(
        [
            "nonsense: unknown; known here: barrier, catch_up, derived, guards, hooks, job, retry, sink, spark, "
            "spool and 4 more",
            "job.name: a job's name is 1 to 63 characters of a-z, 0-9, _ and -, the first of them no -; it is not "
            "a path",
            "job.stratgy: unknown; did you mean strategy?",
            "upstream.snapshot.path: missing",
            "upstream.snapshot.paht: unknown; did you mean path?",
            "upstream.changes.path: missing",
            "tables[0].key: must not be empty",
            "tables[1].key: names a column more than once",
            "sink.type: unknown sink type 'duckbd'; did you mean duckdb?",
            "transform.select[1]: rand is not deterministic: the same row must always give the same result",
            'barrier.interval: a duration must be in seconds, or like "500ms", "1s", "30m", "2h", "1d"',
            "throttle.rate: must be greater than or equal to 0",
            "spark: give master or remote, not both",
        ]
    )


@pytest.mark.parametrize("part", ["job", "upstream", "tables", "sink"])
def test_a_missing_part_is_named(load_text: Load, part: str) -> None:
    start = GOOD.index("[[tables]]") if part == "tables" else GOOD.index(f"[{part}]")
    end = GOOD.find("\n[", start + 1)
    text = GOOD[:start] + (GOOD[end + 1 :] if end > 0 else "")
    assert faults_of(load_text, text) == [f"{part}: missing"]


def test_a_table_may_not_come_twice_nor_share_a_target(load_text: Load) -> None:
    tables = '[[tables]]\nname = "a"\nkey = ["id"]\ntarget = "main.ORDERS"\n[[tables]]\nname = "b"\nkey = ["id"]\n'
    again = '[[tables]]\nname = "a"\nkey = ["id"]\n[[tables]]\nname = "c"\nkey = ["id"]\ntarget = "main.orders"\n'
    assert faults_of(load_text, GOOD + tables + again) == [
        "tables[3].name: a is also the name of tables[1]",
        "tables[4].target: main.orders is also the target of tables[1]",
    ]


def test_a_derived_table_shares_neither_name_nor_target_with_anything(load_text: Load) -> None:
    table = '[[tables]]\nname = "a"\nkey = ["id"]\ntarget = "main.a1"\nlive = "main.shown"\n'
    derived = '[[derived]]\nname = "{}"\nsql = "SELECT count(*) AS n FROM a"\n'
    told = [
        derived.format("A"),
        derived.format("b") + 'target = "main.A1"\n',
        derived.format("c") + 'target = "main.shown"\n',
        derived.format("d"),
        derived.format("D"),
        derived.format("e") + 'key = ["n", "N"]\n',
    ]
    assert sorted(faults_of(load_text, GOOD + table + "".join(told))) == [
        "derived[0].name: A is also the name of tables[1]",
        "derived[1].target: main.A1 is also the target of tables[1]",
        "derived[2].target: main.shown is also the live name of tables[1]",
        "derived[4].name: D is also the name of derived[3]",
        "derived[5].key: names a column more than once",
    ]


def test_a_live_name_that_is_a_target_can_be_in_another_schema_instead(load_text: Load) -> None:
    table = '[[tables]]\nname = "a"\nkey = ["id"]\nlive = "{}"\n'
    (fault,) = faults_of(load_text, GOOD + table.format("a"))
    assert fault.startswith("tables[1].live: a is the target of tables[1]: rename that target, for example a_v2; ")
    offered = fault.rpartition(": ")[2]
    assert offered == "another_schema.a"
    assert load_text(GOOD + table.format(offered)).tables[1].live == offered


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"name = ", "line 1, column 8: not TOML: Invalid value"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"", "job: missing"),
    ],
)
def test_a_file_that_is_no_config_says_so(tmp_path: Path, content: bytes, fault: str) -> None:
    file = tmp_path / "job.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert caught.value.faults[0] == fault


def test_a_file_that_is_not_there_leads_to_init(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the file does not exist") as caught:
        load(tmp_path / "none.toml")
    assert "backfill init" in str(caught.value.hint)


@given(st.text(max_size=70) | st.text("-a1_", max_size=4))
def test_a_job_name_is_never_a_path(name: str) -> None:
    fits = len(name) in range(1, 64) and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    fits = fits and not name.startswith("-")
    assert (JOB_NAME.fullmatch(name) is not None) == fits


def test_a_name_that_commands_take_for_an_option_is_refused_but_a_stored_job_keeps_it(load_text: Load) -> None:
    text = GOOD.replace('name = "orders"', 'name = "-orders"', 1)
    (fault,) = faults_of(load_text, text)
    assert fault.startswith("job.name: ")
    assert fault.endswith("the first of them no -; it is not a path")
    tree = json.loads(load_text(GOOD).stored())
    tree["job"]["name"] = "-orders"
    assert from_stored(json.dumps(tree)).job.name == "-orders"


@pytest.mark.parametrize(
    "url", ["s3://b/staged", "s3a://b/x", "hdfs://h:1/x", "dbfs:/x", "file://other/tmp/x", "gs://b"]
)
def test_staging_as_another_url_is_refused_by_name(load_text: Load, url: str) -> None:
    (fault,) = faults_of(load_text, GOOD.replace("[upstream]", f'staging = "{url}"\n[upstream]', 1))
    assert fault.startswith("job.staging: ")
    assert url.partition(":")[0] in fault
    assert "folder" in fault


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", ".", "a..b", "a\\b", "a\0b", "a\nb", "x" * 201])
@pytest.mark.parametrize("option", ["name", "target"])
def test_a_table_is_named_by_a_name_not_by_a_path(load_text: Load, option: str, name: str) -> None:
    kept = "" if option == "name" else 'name = "orders"\n'
    told = GOOD.replace('name = "orders"\nkey', f"{kept}{option} = {json.dumps(name)}\nkey")
    (fault,) = faults_of(load_text, told)
    assert fault.startswith(f"tables[0].{option}: ")
    assert "not a path" in fault


def test_a_type_beside_two_sides_with_types_is_one_fault(load_text: Load) -> None:
    text = GOOD.replace("snapshot = {", 'snapshot = { type = "files",')
    assert text != GOOD
    assert faults_of(load_text, text) == ["upstream.type: leave it out, or leave out the types of both sides"]


def test_a_database_is_not_asked_for_keys_while_the_config_has_other_faults(load_text: Load) -> None:
    text = """
        [job]
        name = "orders"
        [upstream]
        type = "postgres"
        dsn = "${file:no/such/file}"
        slot = "orders"
        [[tables]]
        name = "public.orders"
        [[tables]]
        name = "public.lines"
        key = []
        [sink]
        type = "duckdb"
        path = "sink.duckdb"
        [barrier]
        interval = "1 fortnight"
    """
    faults = faults_of(load_text, text)
    assert [fault.split(":")[0] for fault in faults] == ["tables[1].key", "barrier.interval"]
    faults = faults_of(load_text, text.replace("slot =", "slott ="))
    assert [f for f in faults if "key" in f] == [f for f in faults if f.startswith("tables[1].key")]


@pytest.mark.parametrize(("staging", "spool"), [("a", "a"), ("a", "a/b"), ("a/b", "a")])
def test_staging_and_spool_are_two_folders(load_text: Load, staging: str, spool: str) -> None:
    text = GOOD.replace("[job]", f'[job]\nstrategy = "chain"\nstaging = "{staging}"', 1)
    (fault,) = faults_of(load_text, text + f'[spool]\npath = "{spool}"\n')
    assert fault.startswith("spool.path: ")
    assert load_text(text + '[spool]\npath = "elsewhere"\n').spool.path.endswith("elsewhere")
    (fault,) = faults_of(load_text, text + '[spool]\npath = "x[1]"\n')
    assert "as a pattern" in fault


WRONG = ["a/../b", -1, ["a", "a"], {"a": "b"}]


@pytest.mark.seconds
def test_no_fault_is_told_in_the_checkers_own_words(load_text: Load) -> None:
    """Each option of each upstream with each wrong value: no prefix of pydantic's, no name of a class."""
    sections = {"barrier": {"interval": 1}, "throttle": {"rate": 1}, "retry": {"limit": 1}, "spool": {"path": "s"}}
    told = set()
    for kind in ("kafka", "files+kafka"):
        whole = {
            **tomli.loads(config_text(upstream=kind, full=True)),
            **sections,
            "spark": {"conf": {}},
            "transform": {},
        }
        for path in list(_paths(whole)):
            for wrong in WRONG:
                told |= set(_faults_with(whole, path, wrong))
    assert len(told) > 50
    own = re.compile(r"value error|assertion failed|input should|instance of|valid dictionary", re.IGNORECASE)
    assert not [fault for fault in told if own.search(fault)]


def _paths(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*at, key)
        if isinstance(item, dict | list):
            yield from _paths(item, (*at, key))


def _faults_with(whole: dict[str, Any], path: tuple[Any, ...], wrong: object) -> tuple[str, ...]:
    """The faults of a stored config in which this value stands at this path."""
    tree = copy.deepcopy(whole)
    place: Any = tree
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    try:
        from_stored(json.dumps(tree))
    except ConfigError as error:
        return error.faults
    return ()
