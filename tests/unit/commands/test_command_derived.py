"""`add --derived`, `remove --derived`: a derived table joins, changes or leaves a job, or nothing changes."""

import json
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import duckdb_shared
import pytest
from half_done import CONFIG
from hint_scene import Scene, scene, settled
from hint_typed import typed

import backfill_cli as bf
from backfill_cli.catalog import Claim
from backfill_cli.config import from_stored
from backfill_cli.engine.job.derived import prepare_derived
from backfill_cli.engine.job.ownership import forget_strays
from backfill_cli.engine.job.resources import Resources
from backfill_cli.engine.loop import run as engine_run
from backfill_cli.engine.loop.checkpoints import promised
from backfill_cli.engine.loop.ports import job_of
from backfill_cli.engine.loop.recovery import recover, unfilled
from backfill_cli.engine.loop.redefine import redefined
from backfill_cli.errors import ConfigError, Fatal, UsageError
from backfill_cli.model.codec import encode
from backfill_cli.model.job import JobState
from backfill_cli.model.verify import TableVerdict, VerifyReport

__all__ = ["scene"]

pytestmark = pytest.mark.seconds

BY_NAME = (
    '[[derived]]\nname = "by_name"\nkey = ["name"]\nsql = "SELECT name, count(*) AS n FROM orders GROUP BY 1"\n'
)
TOTAL = '[[derived]]\nname = "total"\nsql = "SELECT sum(n) AS n FROM by_name"\n'
IDS = BY_NAME.replace("count(*) AS n", "max(id) AS last")
FILE = "job.toml"


@pytest.fixture
def s(scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch) -> Scene:
    """The job `orders`, caught up and stopped; its table in the sink has three rows."""
    made = scene("derived")

    def caught_up() -> None:
        made.catch_up()
        with made.catalog.claim("orders", "test", 5) as claim:
            claim.store.redefine(made.job.config, made.job.until, str(made.folder / FILE))
        made.sql(made.sink, "INSERT INTO orders VALUES (1, 'a'), (2, 'b'), (3, 'b')")

    return settled(made, "caught up", caught_up)


def says(s: Scene, *sections: str) -> None:
    (s.folder / FILE).write_text(CONFIG + "".join(sections))


def typed_in(s: Scene, *words: str) -> str:
    done = s.run(*words)
    assert done.exit_code == 0, done.output
    return done.output


def run(s: Scene, commands: int = 1) -> list[str]:
    """What a run does with commands that redefine the job: it takes them, and recovers. Returns what it told."""
    said: list[object] = []
    with s.catalog.claim("orders", "test", 5) as claim:
        for state in (JobState.STARTING, JobState.RUNNING):
            claim.store.become(state, "")
        for _ in range(commands):
            taken(s, claim, said.append)
        claim.store.become(JobState.STOPPING, "")
        claim.store.become(JobState.STOPPED, "asked")
    return list(map(str, said))


def taken(s: Scene, claim: Claim, tell: Callable[[object], None]) -> None:
    job = s.catalog.definition("orders")
    config = from_stored(job.config)
    with Resources(config) as resources, ExitStack() as opened:
        resources.upstream.restore(job.pin)
        job, _, after = redefined(job, config, resources, claim.store, s.catalog, opened, tell, claim.token)
        recovered(s, claim, after)
        assert job == s.catalog.definition("orders")


def recovered(s: Scene, claim: Claim, resources: Resources) -> None:
    """As a run of the job begins."""
    job = s.catalog.definition("orders")
    stager: Any = SimpleNamespace(  # what is promised has no rows
        intact=lambda *_: True, folder=lambda *_: "", current_folder=lambda *_: "", discard=lambda *_: None
    )
    committed = claim.store.load().committed
    resources.sink.prepare("orders", job.tables, into_existing=True)
    prepare_derived(job, committed.sink_schemas, resources)
    forget_strays(job, committed, resources.sink, lambda _said: None)
    mine = job_of(job, claim.token)
    kept = recover(mine, claim.store, resources.sink, stager, 700)
    if unfilled(mine, resources.sink):  # as the loop goes on
        filling = promised(kept, kept.committed, kept.last_epoch, 700, claim.token)
        assert filling is not None
        claim.store.prepare(filling, None, None)
        recover(mine, claim.store, resources.sink, stager, 700)


def begins(s: Scene) -> None:
    """A run of the job begins, and ends before its loop."""
    config = from_stored(s.catalog.definition("orders").config)
    with s.catalog.claim("orders", "test", 5) as claim, Resources(config) as after:
        recovered(s, claim, after)


def rows(s: Scene, table: str) -> list[tuple[Any, ...]]:
    with duckdb_shared.opened(s.sink, read_only=True) as db:
        return db.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall()


def there(s: Scene, table: str) -> bool:
    with duckdb_shared.opened(s.sink, read_only=True) as db:
        return bool(db.execute("FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall())


def agreed(s: Scene) -> set[str]:
    """What the sink knows, each at the catalog's checkpoint; the sink's definition is the catalog's."""
    sink = s.config.open_sink()
    found = {name: one.epoch for name, one in sink.committed("orders").items()}
    assert set(found.values()) == {s.catalog.job("orders").epoch}
    saved = sink.saved("orders")
    assert saved is not None
    assert saved.definition == encode(s.catalog.definition("orders"))
    return set(found)


def test_a_derived_table_joins_changes_and_leaves_a_job(s: Scene) -> None:
    says(s, TOTAL, BY_NAME)
    hint = s.refused("start", "--config", FILE)
    with typed(hint) as asked:
        (add,) = asked.commands()
        assert add[3:6:2] == ["by_name", "total"], "each after what it reads"
        assert "orders.name ─→ name" in typed_in(s, *add)
        (said,) = run(s)
    assert said.endswith(", is taken: the job goes on with the derived tables that it has now")
    assert rows(s, "by_name") == [("a", 1), ("b", 2)]
    assert rows(s, "total") == [(3,)]
    assert agreed(s) == {"orders", "by_name", "total"}

    changed = BY_NAME.replace("count(*)", "10 * count(*)"), TOTAL.replace("sum(n) AS n", "sum(n) / 4 AS n")
    says(s, *changed)
    with typed(s.refused("set", "--config", FILE)) as asked:
        (replaces,) = asked.commands()
        assert "by_name, total --replace requested" in typed_in(s, *replaces)
        (waits,) = s.catalog.job("orders").waiting
        assert waits.said == "add --derived by_name --derived total --replace"
        run(s)
    assert rows(s, "by_name") == [("a", 10), ("b", 20)]
    assert rows(s, "total") == [(7.5,)], "of another type"
    assert agreed(s) == {"orders", "by_name", "total"}

    says(s)
    with typed(s.refused("set", "--config", FILE)) as asked:
        (removes,) = asked.commands()
        assert removes == ["remove", "orders", "--derived", "total", "--derived", "by_name"]
        assert "remove total, by_name requested; their rows in the sink stay; it takes" in typed_in(s, *removes)
        run(s)
    assert rows(s, "by_name") == [("a", 10), ("b", 20)], "they stay as they are"
    assert rows(s, "total") == [(7.5,)]
    assert agreed(s) == {"orders"}
    assert "derived" not in json.loads(s.catalog.definition("orders").fingerprint)
    typed_in(s, "set", "--config", FILE)
    told = [one.mutations for one in s.catalog.ledger("orders", 9) if "--derived" in one.mutations]
    assert told == [
        "add --derived by_name --derived total",
        "add --derived by_name --derived total --replace",
        "remove --derived total --derived by_name",
    ]


def test_one_is_refreshed_in_full_by_an_option_that_comes_and_goes(s: Scene) -> None:
    in_full = BY_NAME + 'refresh = "full"\n'
    for section, told in ((BY_NAME, None), (in_full, "full"), (BY_NAME, None)):
        says(s, section)
        typed_in(
            s,
            "add",
            "orders",
            "--derived",
            "by_name",
            *["--replace"] * len(s.catalog.definition("orders").derived),
        )
        run(s)
        assert rows(s, "by_name") == [("a", 1), ("b", 2)]
        (shown,) = json.loads(typed_in(s, "status", "orders", "--json"))["jobs"][0]["derived"]
        assert shown["refresh"] == told
        assert (", computed whole" in typed_in(s, "status", "orders")) == (told == "full")
    says(s, in_full)
    with typed(s.refused("add", "orders", "--derived", "by_name")) as asked:
        pass_again(s, asked, in_full)
    assert [one.refresh for one in s.catalog.definition("orders").derived] == [""]


def test_a_select_that_needs_to_be_refreshed_in_full_is_refused_once_the_option_is_gone(s: Scene) -> None:
    without = (
        '[[derived]]\nname = "by_name"\nkey = ["name"]\n'
        'sql = "SELECT name, count(*) AS n FROM orders GROUP BY 1 UNION SELECT name, 0 FROM orders"\n'
    )
    in_full = without.replace("[[derived]]", '[[derived]]\nrefresh = "full"').replace('["name"]', '["name", "n"]')
    says(s, in_full)
    typed_in(s, "add", "orders", "--derived", "by_name")
    run(s)
    says(s, in_full.replace('refresh = "full"\n', ""))
    for words in (("start", "--config", FILE), ("plan", "--config", FILE), ("set", "orders", "--config", FILE)):
        with typed(s.refused(*words)) as asked:
            asked.says('refresh = "full"')
            assert "--replace" not in asked.hint, "it would be refused"
            says(s, in_full)
            typed_in(s, "plan", "--config", FILE)
            says(s, in_full.replace('refresh = "full"\n', ""))


def test_what_a_verify_found_in_one_is_told_until_it_leaves(s: Scene) -> None:
    says(s, BY_NAME)
    typed_in(s, "add", "orders", "--derived", "by_name")
    run(s)
    wrong = TableVerdict("by_name", "by_name", False, 2, 2, missing=1, extra=1, derived=True)
    s.catalog.verified.note(VerifyReport("orders", 5, (TableVerdict("orders", "orders", True, 3, 3), wrong), 1.0))
    typed_in(s, "remove", "orders", "--derived", "by_name")
    assert "verified:         different" in typed_in(s, "status", "orders")
    run(s)
    assert "different" not in typed_in(s, "status", "orders")
    assert [(one.table, one.equal) for one in s.catalog.job("orders").verified] == [("orders", True)]


def test_two_that_read_each_others_columns_are_replaced_together(s: Scene) -> None:
    says(s, BY_NAME, TOTAL)
    typed_in(s, "add", "orders", "--derived", "by_name", "--derived", "total")
    run(s)
    renamed = BY_NAME.replace("AS n", "AS m"), TOTAL.replace("sum(n) AS n", "sum(m) AS all_of_them")
    says(s, *renamed)
    for alone in ("by_name", "total"):
        assert s.run("add", "orders", "--derived", alone, "--replace").exit_code == 2
    with typed(s.refused("start", "--config", FILE)) as asked:
        (replaces,) = asked.commands()
        typed_in(s, *replaces)
        run(s)
    assert rows(s, "total") == [(3,)]
    assert agreed(s) == {"orders", "by_name", "total"}
    says(s, BY_NAME, renamed[1])
    with typed(s.refused("add", "orders", "--derived", "by_name", "--derived", "total", "--replace")) as asked:
        leaves_out, _ = asked.commands()
        assert leaves_out == [
            "add",
            "orders",
            "--derived",
            "by_name",
            "--config",
            str(s.folder / FILE),
            "--replace",
        ]
        asked.says("leave it out")


def test_commands_of_derived_tables_follow_each_other_while_no_run_takes_them(s: Scene) -> None:
    says(s, BY_NAME, TOTAL)
    typed_in(s, "add", "orders", "--derived", "by_name")
    typed_in(s, "add", "orders", "--derived", "total")
    with typed(s.refused("set", "--config", FILE)) as asked:
        asked.says("a run takes it first")
        assert asked.commands() == [["resume", "orders", "--detach"]]
    run(s, commands=2)
    assert rows(s, "total") == [(3,)]
    moved = BY_NAME + 'target = "elsewhere"\n'
    says(s, moved, TOTAL)
    with typed(s.refused("start", "--config", FILE)) as asked:
        removes, adds, back = asked.commands()
        assert removes == ["remove", "orders", "--derived", "total", "--derived", "by_name"]
        assert back[-1] == "--into-existing"
        for one in (removes, adds, back):
            typed_in(s, *one)
        run(s, commands=3)
    assert rows(s, "elsewhere") == rows(s, "by_name") == [("a", 1), ("b", 2)]
    assert agreed(s) == {"orders", "by_name", "total"}
    typed_in(s, "set", "--config", FILE)


def test_a_start_with_the_config_that_the_waiting_commands_lead_to_is_the_next_run(s: Scene) -> None:
    start = ("start", "--config", FILE, "--until", "caught-up")
    says(s, BY_NAME)
    typed_in(s, "add", "orders", "--derived", "by_name")
    own, waits = s.catalog.definition("orders").config, s.catalog.job("orders").waiting
    typed_in(s, "plan", "--config", FILE)
    typed_in(s, *start)
    assert (s.catalog.definition("orders").config, s.catalog.job("orders").waiting) == (own, waits)
    run(s)
    typed_in(s, *start)

    says(s, IDS, TOTAL.replace("sum(n)", "sum(last)"))
    typed_in(s, "add", "orders", "--derived", "by_name", "--replace")
    with typed(s.refused(*start)) as asked:  # of what is not asked yet, the rest
        (add,) = asked.commands()
        assert add[3:] == ["total", "--config", str(s.folder / FILE)]
        typed_in(s, *add)
    (s.folder / FILE).write_text((s.folder / FILE).read_text() + "[throttle]\nrate = 7\n")
    typed_in(s, *start)  # what else has changed is stored at once
    assert from_stored(s.catalog.definition("orders").config).throttle.rate == 7
    run(s, commands=3)
    assert rows(s, "by_name") == [("a", 1), ("b", 3)]
    assert rows(s, "total") == [(4,)]
    typed_in(s, *start)

    typed_in(s, "remove", "orders", "--derived", "total")
    with typed(s.refused(*start)) as asked:  # the file still has it: so it would be refused once it has left
        (again,) = asked.commands()
        assert again[3:] == ["total", "--config", str(s.folder / FILE), "--into-existing"]
        says(s, IDS)
        typed_in(s, *start)
    says(s, IDS, TOTAL.replace("sum(n)", "sum(last)"))
    run(s)
    s.refused(*start)


def test_a_start_whose_config_has_what_a_waiting_command_removes_says_how_it_comes_back(s: Scene) -> None:
    says(s, BY_NAME, TOTAL)
    typed_in(s, "add", "orders", "--derived", "by_name", "--derived", "total")
    run(s)
    typed_in(s, "remove", "orders", "--derived", "total")
    with typed(s.refused("add", "orders", "--derived", "total", "--config", FILE)) as asked:
        asked.says("for what joins to be written over them")
        (into,) = asked.commands()
    with typed(s.refused("start", "--config", FILE, "--until", "caught-up")) as asked:
        (again,) = asked.commands()
        assert sorted(again) == sorted([*into[:-2], str(s.folder / FILE), into[-1]])
        typed_in(s, *again)
        said = run(s, commands=2)
    assert not [one for one in said if "was refused" in one]
    assert agreed(s) == {"orders", "by_name", "total"}
    typed_in(s, "remove", "orders", "--derived", "total", "--with-rows", "--confirm", "orders")
    with typed(s.refused("start", "--config", FILE, "--until", "caught-up")) as asked:
        (again,) = asked.commands()
        assert "--into-existing" not in again, "it is dropped"
        typed_in(s, *again)
        run(s, commands=2)
    assert agreed(s) == {"orders", "by_name", "total"}


def test_a_start_before_an_added_table_is_in_the_file_is_refused_as_it_would_be_afterwards(s: Scene) -> None:
    says(s, BY_NAME)
    typed_in(s, "add", "orders", "--derived", "by_name")
    says(s)
    for _ in ("waits", "is taken"):
        with typed(s.refused("start", "--config", FILE)) as asked:
            assert asked.commands() == [["remove", "orders", "--derived", "by_name"]]
            asked.says(f"or add the sections of by_name to {s.folder / FILE}")
            says(s, BY_NAME)
            typed_in(s, "start", "--config", FILE)
            says(s)
        run(s)
    typed_in(s, "remove", "orders", "--derived", "by_name")
    typed_in(s, "start", "--config", FILE)


def test_a_removal_names_the_file_that_the_job_has_once_the_command_before_it_is_taken(s: Scene) -> None:
    says(s)
    other = s.folder / "other.toml"
    other.write_text(CONFIG + BY_NAME + TOTAL)
    typed_in(s, "add", "orders", "--derived", "by_name", "--derived", "total", "--config", str(other))
    assert f"remove it from {other}, too" in typed_in(s, "remove", "orders", "--derived", "total")
    run(s, commands=2)
    assert f"remove it from {other}, too" in typed_in(s, "remove", "orders", "--derived", "by_name")


def test_one_that_left_comes_back_into_its_table(s: Scene) -> None:
    says(s, BY_NAME)
    typed_in(s, "add", "orders", "--derived", "by_name")
    run(s)
    typed_in(s, "remove", "orders", "--derived", "by_name")
    run(s)
    for words in (("set",), ("start", "--until", "caught-up")):
        with typed(s.refused(*words, "--config", FILE)) as asked:
            (comes,) = asked.commands()
            assert comes[-1] == "--into-existing", "`add` would be refused without it"
            typed_in(s, *comes)
            run(s)
        typed_in(s, "remove", "orders", "--derived", "by_name")
        run(s)
    says(s, BY_NAME + 'target = "elsewhere"\n')
    assert "--into-existing" not in str(s.refused("set", "--config", FILE)), "whose that is, is not known"
    s.sql(s.sink, "INSERT INTO orders VALUES (4, 'c')")
    for section in (BY_NAME, IDS):  # with the columns that it had, and with others
        says(s, section)
        with typed(s.refused("add", "orders", "--derived", "by_name")) as asked:
            (again,) = asked.commands()
            assert again[-1] == "--into-existing"
            before = rows(s, "by_name")
            typed_in(s, *again)
            assert rows(s, "by_name") == before
            run(s)
        typed_in(s, "remove", "orders", "--derived", "by_name")
        run(s)
    assert rows(s, "by_name") == [("a", 1), ("b", 3), ("c", 4)]
    s.sql(s.sink, "DROP TABLE by_name")
    s.sql(s.sink, "CREATE TABLE by_name (name VARCHAR PRIMARY KEY, last BIGINT)")
    s.sql(s.sink, "INSERT INTO by_name VALUES ('mine', 1)")
    assert "--into-existing" not in str(s.refused("add", "orders", "--derived", "by_name"))
    with typed(s.refused("add", "orders", "--derived", "by_name", "--into-existing")) as asked:
        asked.says("or drop it")
    assert rows(s, "by_name") == [("mine", 1)]


def test_while_the_snapshot_is_read_no_table_is_taken_over(scene: Callable[..., Scene]) -> None:
    s = scene("derived")
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine(s.job.config, s.job.until, str(s.folder / FILE))
    says(s, BY_NAME)
    s.sql(s.sink, "CREATE TABLE by_name (name VARCHAR, n BIGINT)")
    s.sql(s.sink, "INSERT INTO by_name VALUES ('mine', 1)")
    with typed(s.refused("add", "orders", "--derived", "by_name", "--into-existing")) as asked:
        (again,) = asked.commands()
        assert rows(s, "by_name") == [("mine", 1)]
        s.catch_up()
        s.sql(s.sink, "INSERT INTO orders VALUES (1, 'a')")
        typed_in(s, *again)
        run(s)
    assert rows(s, "by_name") == [("a", 1)]


def test_python_adds_and_removes_them(s: Scene) -> None:
    job = bf.Job.from_toml(FILE)
    says(s, BY_NAME)
    assert job.add_derived("by_name").table == "by_name"
    run(s)
    assert rows(s, "by_name") == [("a", 1), ("b", 2)]
    says(s, IDS)
    job.add_derived("by_name", FILE, replace=True)
    run(s)
    assert rows(s, "by_name") == [("a", 1), ("b", 3)]
    says(s, IDS, TOTAL.replace("sum(n)", "sum(last)"))
    job.add_derived(["total"])
    run(s)
    job.remove_derived(["by_name", "total"])
    run(s)
    job.add_derived(["by_name", "total"], into_existing=True)
    run(s)
    assert rows(s, "total") == [(4,)]
    job.remove_derived(["by_name", "total"], with_rows=True, confirm="orders")
    run(s)
    assert not there(s, "by_name")
    assert not there(s, "total")


def test_python_asks_for_a_config_that_is_not_known(s: Scene) -> None:
    with s.catalog.claim("orders", "test", 5) as claim:
        claim.store.redefine(s.job.config, s.job.until, "")
    with pytest.raises(UsageError, match="it is not known which config") as unknown:
        bf.Job("orders", s.catalog.path).add_derived("by_name")
    says(s, BY_NAME)
    with typed(unknown.value) as hint:
        (words,) = hint.commands(NAME="by_name")
        typed_in(s, *words)
        run(s)
    assert rows(s, "by_name") == [("a", 1), ("b", 2)]


def test_a_config_takes_no_section_that_it_could_not_have_been_read_with(s: Scene) -> None:
    config = from_stored(s.job.config)
    with pytest.raises(ConfigError, match="orders") as refused:
        config.with_derived({"name": "orders", "sql": "SELECT count(*) AS n FROM orders"})
    with typed(refused.value) as hint:
        hint.says("correct its [[derived]]")
        made = config.with_derived({"name": "total", "sql": "SELECT count(*) AS n FROM orders"})
    assert [one.name for one in made.derived] == ["total"]


def test_what_cannot_be_added_is_refused_by_name_and_has_changed_nothing(s: Scene) -> None:
    says(s, BY_NAME, TOTAL)
    typed_in(s, "add", "orders", "--derived", "by_name")
    run(s)

    def refused(section: str, said: str, *more: str, name: str = "more") -> Any:
        says(s, *[BY_NAME] * (name != "by_name"), section.replace("by_name", name, 1))
        hint = s.refused("add", "orders", "--derived", name, *more)
        assert said in s.run("add", "orders", "--derived", name, *more).stderr.replace("\n", " ")
        return typed(hint)

    with refused(BY_NAME, "'by_name', as the config has it", name="by_name") as asked:
        assert asked.commands() == [["verify", "orders", "--table", "by_name", "--fix"]]
    with refused(IDS, "with another SELECT, key, target or refresh", name="by_name") as asked:
        pass_again(s, asked, IDS)
    elsewhere = IDS + 'target = "elsewhere"\n'
    with refused(elsewhere, "is in by_name, not in elsewhere", "--replace", name="by_name") as asked:
        assert [one[0] for one in asked.commands()] == ["remove", "add"]
        asked.says('set derived.target = "by_name"')
    with refused(BY_NAME, "derived table 'more' does not exist; derived tables: by_name", "--replace") as asked:
        (words,) = asked.commands()
        assert words[:4] == ["add", "orders", "--derived", "more"]
        assert "--replace" not in words
    says(s, BY_NAME.replace("by_name", "more", 1) + 'target = "by_name"\n')
    with typed(s.refused("add", "orders", "--derived", "more")) as asked:
        asked.says('name another target: derived.target = "more_2"')
    others = CONFIG.replace('[[tables]]\nname = "orders"', '[[tables]]\nname = "others"')
    (s.folder / FILE).write_text(others + BY_NAME.replace("by_name", "orders", 1) + 'target = "free"\n')
    with typed(s.refused("add", "orders", "--derived", "orders")) as asked:
        asked.says('give it another name: derived.name = "orders_2"')
    with refused(BY_NAME.replace("FROM orders", "FROM nonesuch"), "nonesuch") as asked:
        asked.says("read one of these")
    with refused(BY_NAME.replace("count(*)", "random()"), "its value is of the moment") as asked:
        asked.says("use a column of the rows")
    s.sql(s.sink, "CREATE TABLE more AS SELECT 1 AS a")
    with refused(BY_NAME, "more exists, with rows that are not this job's") as asked:
        asked.says('name another target: derived.target = "more_2"')
    s.sql(s.sink, "CREATE TABLE more_2 AS SELECT 1 AS a")
    with refused(BY_NAME + 'target = "more_2"\n', "more_2 exists, with rows that are not this job's") as asked:
        asked.says('name another target: derived.target = "more_3"')
    says(s)
    with typed(s.refused("add", "orders", "--derived", "more")) as asked:
        asked.says("write its [[derived]] section there")
    with typed(s.refused("add", "orders")) as asked:
        asked.says("--derived NAME")
    with typed(s.refused("add", "orders", "--table", "more", "--replace")) as asked:
        asked.says("--derived NAME --replace")


def pass_again(s: Scene, asked: Any, section: str) -> None:
    (words,) = asked.commands()
    assert words[-1] == "--replace"
    says(s, section)
    typed_in(s, *words)
    run(s)
    says(s, BY_NAME)
    typed_in(s, *words)
    run(s)


def test_what_cannot_be_removed_is_refused_by_name_and_has_changed_nothing(s: Scene) -> None:
    says(s, BY_NAME, TOTAL)
    for name in ("by_name", "total"):
        typed_in(s, "add", "orders", "--derived", name)
        run(s)
    with typed(s.refused("remove", "orders", "--derived", "by_name")) as asked:
        assert asked.commands() == [["remove", "orders", "--derived", "by_name", "--derived", "total"]]
    with typed(s.refused("remove", "orders", "--derived", "by_nam")) as asked:
        assert asked.commands() == [["status", "orders"]]
    with typed(s.refused("remove", "orders", "--table", "total")) as asked:
        assert asked.commands() == [["remove", "orders", "--derived", "total"]]
    with typed(s.refused("remove", "orders")) as asked:
        asked.says("--derived NAME")
    with typed(s.refused("remove", "orders", "--derived", "total", "--with-rows")) as asked:
        (words,) = asked.commands()
        typed_in(s, *words)
        run(s)
    assert not there(s, "total")


def test_rows_that_could_not_be_filled_refuse_the_command_at_its_barrier_and_the_job_goes_on(s: Scene) -> None:
    says(s, BY_NAME, IDS.replace("by_name", "twice").replace("max(id) AS last", "id").replace("GROUP BY 1", ""))
    typed_in(s, "add", "orders", "--derived", "by_name")
    run(s)
    before = s.catalog.definition("orders")
    typed_in(s, "add", "orders", "--derived", "twice")
    (refused,) = run(s)
    assert "its key (name) has duplicates: (b) 2 times" in refused
    assert agreed(s) == {"orders", "by_name"}
    assert before == s.catalog.definition("orders")
    assert not there(s, "twice")
    (line,) = [one.mutations for one in s.catalog.ledger("orders", 9) if "twice" in one.mutations]
    assert line == "add --derived twice, refused"
    status = " ".join(typed_in(s, "status", "orders").split())
    assert "refused: add --derived twice, requested by" in status
    assert "has duplicates: (b) 2 times; correct the rows that share it" in status
    typed_in(s, "remove", "orders", "--derived", "by_name")
    run(s)
    assert "refused" not in typed_in(s, "status", "orders"), "a later command has been taken"


def test_a_start_ends_as_refused_if_the_command_that_waited_for_it_was(
    s: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = ("start", "--config", FILE, "--until", "caught-up")
    twice = IDS.replace("by_name", "twice").replace("max(id) AS last", "id").replace("GROUP BY 1", "")
    says(s, twice)
    typed_in(s, "add", "orders", "--derived", "twice")

    def taken_by_run(*_: object) -> JobState:
        run(s)
        return JobState.STOPPED

    with monkeypatch.context() as patched:
        patched.setattr(engine_run, "start", taken_by_run)
        ended = s.run(*start)
        assert ended.exit_code == 2
        assert "is not what its config says: add --derived twice was refused" in ended.stderr
        assert "has duplicates: (b) 2 times" in ended.stderr
        says(s, BY_NAME)
        typed_in(s, "add", "orders", "--derived", "by_name")
        typed_in(s, *start)
    assert s.run(*start).exit_code == 0, "a later command has been taken"


@pytest.mark.parametrize(
    "point", ["derived-checked", "derived-prepared", "derived-renewed", "redefinition-checked", "redefined"]
)
@pytest.mark.parametrize("again", [False, True])
def test_a_kill_on_the_way_leaves_it_in_or_out(s: Scene, point: str, again: bool) -> None:
    if again:
        says(s, BY_NAME)
        typed_in(s, "add", "orders", "--derived", "by_name")
        run(s)
    elif point == "derived-renewed":
        return
    says(s, IDS)
    typed_in(s, "add", "orders", "--derived", "by_name", *(["--replace"] if again else []))

    class Killed(BaseException): ...

    def hit(name: str) -> None:
        if name == point:
            raise Killed

    with pytest.MonkeyPatch.context() as dies:
        for module in ("engine.loop.redefine", "engine.job.derived"):
            dies.setattr(f"backfill_cli.{module}.hit", hit)
        with pytest.raises(Killed):
            run(s)
    if again and point != "redefined":
        assert rows(s, "by_name") == [("a", 1), ("b", 2)]
    begins(s)
    if point != "redefined":
        run(s)  # the command is still there
    assert rows(s, "by_name") == [("a", 1), ("b", 3)]
    assert agreed(s) == {"orders", "by_name"}


def test_one_that_cannot_be_computed_any_more_leaves_before_the_run_begins(s: Scene) -> None:
    number = BY_NAME.replace("count(*)", "sum(CAST(name AS INTEGER))")
    s.sql(s.sink, "UPDATE orders SET name = CAST(id AS VARCHAR)")
    says(s, number)
    typed_in(s, "add", "orders", "--derived", "by_name")
    run(s)
    s.sql(s.sink, "UPDATE orders SET name = 'x' WHERE id = 2")
    s.sql(s.sink, "DROP TABLE by_name")
    with pytest.raises(Fatal, match="'by_name' cannot be computed") as refused:
        begins(s)
    with typed(refused.value) as asked:
        remove, resume = asked.commands()
        assert resume == ["resume", "orders"]
        typed_in(s, *remove)
        run(s)
    assert agreed(s) == {"orders"}
