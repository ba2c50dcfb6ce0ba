"""`start --from … --to …`: the first job in one line; what it writes, what it asks, and what it leaves alone."""

import errno
import io
import json
import multiprocessing
import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tomli
from command_builders import Run, fake_engine
from hint_typed import typed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_cli import registry
from backfill_cli.commands import _written
from backfill_cli.config import load
from backfill_cli.config.draft import Asked, drafted
from backfill_cli.config.template import template
from backfill_cli.errors import BackfillError, BadData, SinkInUse, command, in_config
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.reports import PlannedTable, PlanReport, Refusal

TABLE = PlannedTable("orders", "orders", ("id",), 1, 2, 13, (("id", "bigint"), ("n", "bigint")))
PLAN = PlanReport("orders", "snapshot", "it is pinned", (TABLE,), "0", retention="its files")
PLACES = ("--from", "orders", "--to", "w.duckdb")


class Terminal(io.StringIO):
    """stdin of a person who types this."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def orders(folder: Path) -> Path:
    """Rows of which the key can be told."""
    (folder / "orders").mkdir()
    (folder / "orders" / "a.csv").write_text("id,n\n1,5\n2,5\n")
    return folder / "orders"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The configs that were planned, then started, by an engine that does nothing."""
    seen: list[Any] = []

    def plan(job: Any, *_: Any) -> Any:
        seen.append(("plan", job.fingerprint()))
        return PLAN

    fake_engine(monkeypatch, "job.checks", plan=plan)
    fake_engine(monkeypatch, "loop.run", start=lambda *_: None)

    def run_shown(ctx: Any, name: str, store: Any, *_: Any) -> None:
        seen.append(("start", name, store.path))

    monkeypatch.setattr("backfill_cli.commands.start.run_shown", run_shown)
    return seen


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The person at the terminal types this."""
    monkeypatch.setattr(
        "backfill_cli.commands.start.sys", SimpleNamespace(stdin=Terminal(text), stderr=Terminal())
    )


@pytest.mark.usefixtures("orders")
def test_one_line_does_as_init_plan_and_start_do(run: Run, folder: Path, started: list[Any]) -> None:
    done = run("start", *PLACES, "--yes")
    assert done.exit_code == 0, done.output
    assert "orders: 1 csv file, 13 B, 2 columns, key id\nwrote job.toml\n" in done.stderr
    one_line = started.copy()
    written = (folder / "job.toml").read_text()
    (folder / "job.toml").unlink()
    started.clear()
    for words in (("init", *PLACES), ("plan",), ("start",)):
        assert run(*words).exit_code == 0
    assert (folder / "job.toml").read_text() == written
    assert started == one_line == [one_line[0], ("start", "orders", folder / ".backfill/catalog.duckdb")]


@pytest.mark.usefixtures("orders")
def test_yes_is_what_scripts_pass_to_a_start_that_would_not_ask_as_well(run: Run, started: list[Any]) -> None:
    assert run("init", *PLACES).exit_code == 0
    assert run("start", "--yes").exit_code == 0
    assert started


def test_columns_that_can_be_no_key_are_counted_too(run: Run, folder: Path) -> None:
    (folder / "orders").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "amount": [0.5, 1.5]}), folder / "orders" / "a.parquet")
    assert "orders: 1 parquet file, " in (said := run("init", *PLACES).stderr)
    assert ", 2 columns, key id\n" in said


@pytest.mark.usefixtures("orders")
def test_typed_again_it_goes_on_with_the_config_as_it_is_now(run: Run, folder: Path, started: list[Any]) -> None:
    assert run("start", *PLACES, "-y").exit_code == 0
    edited = (folder / "job.toml").read_text().replace('# where = "amount > 0"', "[throttle]\nrate = 7")
    (folder / "job.toml").write_text(edited)
    (folder / "orders" / "b.csv").write_text("id,n\nx,y\n")
    again = run("start", *PLACES, "-y")
    assert again.exit_code == 0
    assert "job.toml was written for these places before, and is used as it is now" in again.stderr
    assert (folder / "job.toml").read_text() == edited
    assert [one[0] for one in started] == ["plan", "start"] * 2


@pytest.mark.usefixtures("orders", "started")
@pytest.mark.parametrize("there", ["mine", "", b"\xff\xfe"])
def test_another_config_is_left_and_the_way_on_is_another_file(
    run: Run, folder: Path, there: str | bytes, started: list[Any]
) -> None:
    (folder / "job.toml").write_bytes(there if isinstance(there, bytes) else there.encode())
    refused = run("start", *PLACES, "--key", "id", "--yes")
    assert (refused.exit_code, started) == (2, [])
    assert "job.toml already exists, and was not written for these places" in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        *_, words = hint.commands()
        done = run(*words, "--yes")
        assert done.exit_code == 0, done.output
        assert load(folder / "other.toml").tables[0].key == ["id"]
    assert sorted(one.name for one in folder.iterdir()) == ["job.toml", "orders", "other.toml"]


USED = "table orders exists, with rows that are not this job's"


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize("at", ["plan", "start"])
@pytest.mark.parametrize("was_there", [False, True])
def test_a_refused_start_leaves_no_config_and_the_corrected_one_writes_it(
    run: Run, folder: Path, started: list[Any], monkeypatch: pytest.MonkeyPatch, at: str, was_there: bool
) -> None:
    """A config that was there stays; the way on through --into-existing writes the config again."""
    if was_there:
        assert run("init", *PLACES).exit_code == 0
    hint = "keep its rows: " + command("start --config job.toml --into-existing")

    def plan(*_: Any) -> Any:
        return replace(PLAN, refused=(Refusal(USED, hint),) if at == "plan" else ())

    def refuse(*_: Any) -> None:
        raise SinkInUse(USED, hint)

    with monkeypatch.context() as patch:
        fake_engine(patch, "job.checks", plan=plan)
        patch.setattr("backfill_cli.commands.start.run_shown", refuse)
        refused = run("start", *PLACES, "--yes")
    assert (refused.exit_code, USED in refused.stderr) == (2, True)
    assert ("removed job.toml: no job was created" in refused.stderr) == (not was_there)
    assert (folder / "job.toml").exists() == was_there
    words = refused.stderr.partition("keep its rows: backfill ")[2].splitlines()[0].split()
    assert words[1:-1] == (["--config", "job.toml"] if was_there else [*PLACES, "--yes"])
    again = run(*words)
    assert again.exit_code == 0, again.output
    assert started[-1][0] == "start"


@pytest.mark.usefixtures("orders", "started")
def test_a_hint_that_changes_the_config_of_a_refused_start_writes_it_first(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in another file, and beside a corrected command, which nothing that is left hinders."""

    def refuse(*_: Any) -> None:
        raise BadData("it is none", in_config("correct upstream.snapshot.schema"))

    for more in ((), ("--config", "other.toml")):
        with monkeypatch.context() as patch:
            patch.setattr("backfill_cli.commands.start.run_shown", refuse)
            refused = run("start", *PLACES, "--yes", *more)
        assert [one.name for one in folder.glob("*.toml")] == []
        change, init = refused.stderr.partition("Try: ")[2].split("; to have a config to change: backfill ")
        assert change == "correct upstream.snapshot.schema"
        assert run("start", *PLACES, "--key", "id", "--yes", *more).exit_code == 0
        (folder / (more[-1] if more else "job.toml")).unlink()
        assert run(*init.split()).exit_code == 0
        assert run("start", *more).exit_code == 0
        (folder / (more[-1] if more else "job.toml")).unlink()


def test_a_start_until_caught_up_is_not_told_how_it_would_end(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "orders").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), folder / "orders" / "a.parquet")
    fake_engine(monkeypatch, "loop.run", start=lambda *_: None)
    monkeypatch.setattr("backfill_cli.commands.start.run_shown", lambda *_: None)
    for words, told in (((), True), (("--until", "caught-up"), False)):
        done = run("start", *PLACES, "--yes", *words)
        assert (done.exit_code, "with --until caught-up it ends by itself" in " ".join(done.stderr.split())) == (
            0,
            told,
        )


@pytest.mark.usefixtures("orders")
@pytest.mark.parametrize(("typed_in", "starts"), [("\n", True), ("y\n", True), ("n\n", False), ("", False)])
def test_on_a_terminal_it_asks(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, started: list[Any], typed_in: str, starts: bool
) -> None:
    answer(monkeypatch, typed_in)
    done = run("start", *PLACES)
    assert done.exit_code == 0, done.output
    assert [one[0] for one in started] == ["plan", "start"][: 1 + starts]
    plan = done.stderr.partition("wrote job.toml\n")[2].partition("not started")[0]
    told = ["job", "strategy", "change", "time", "retention", "", "table"]
    assert [line.partition(" ")[0] for line in plan.splitlines()] == told, "no columns: they can be many"
    assert (folder / "job.toml").exists()
    if not starts:
        assert done.stderr.endswith(
            "not started; job.toml stays as it is\nTry: backfill start --config job.toml\n"
        )
        answer(monkeypatch, typed_in)
        told = json.loads(run("start", *PLACES, "--json").stdout)
        assert (told["job"], told["file"]) == ("orders", "job.toml")
        assert run(*told["hint"]["commands"][0].split()[1:]).exit_code == 0
        assert started[-1][0] == "start"


@pytest.mark.usefixtures("orders")
def test_without_a_terminal_and_without_yes_nothing_is_written(run: Run, folder: Path, started: list[Any]) -> None:
    refused = run("start", *PLACES, "--until", "caught-up", "--into-existing")
    assert (refused.exit_code, started) == (2, [])
    assert [one.name for one in folder.iterdir()] == ["orders"]
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        at_once, look = hint.commands()
        assert at_once[-4:] == ["--yes", "--until", "caught-up", "--into-existing"]
        assert run(*look).exit_code == 0
        assert run(*at_once).exit_code == 0
        assert [one[0] for one in started] == ["plan", "start"]


def test_hints_of_a_config_elsewhere_name_the_places_as_they_are_typed_here(
    run: Run, folder: Path, orders: Path, started: list[Any]
) -> None:
    (folder / "conf").mkdir()
    words = ("start", "--config", "conf/a.toml", *PLACES)
    with typed(run(*words).stderr.split("Try: ", 1)[1]) as hint:
        at_once, look = hint.commands()
        assert run(*look).exit_code == 0
        assert run(*at_once).exit_code == 0
    assert load(folder / "conf/a.toml").tree["upstream"]["snapshot"]["path"] == str(orders)
    with typed(run(*words, "--key", "id", "--yes").stderr.split("Try: ", 1)[1]) as hint:
        *_, other = hint.commands()
        assert run(*other, "--yes").exit_code == 0
    assert load(folder / "other.toml").tree["sink"]["path"] == str(folder / "w.duckdb")
    assert [one[0] for one in started] == ["plan", "start"] * 2


def test_a_full_disk_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, _text: str) -> None:
        file.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(_written, "_write", full)
    with pytest.raises(BackfillError, match="No space left"):
        _written.create(folder / "job.toml", "x")
    assert list(folder.iterdir()) == []


def test_a_key_that_cannot_be_told_is_asked_for_in_a_line(run: Run, orders: Path, started: list[Any]) -> None:
    (orders / "b.csv").write_text("id,n\n1,5\n")
    refused = run("start", *PLACES, "--yes")
    assert refused.exit_code == 2
    assert "the key of table 'orders' cannot be told from the data:" in refused.stderr
    assert "no single column is unique in the 3 rows read" in refused.stderr
    assert not (orders.parent / "job.toml").exists()
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        ((option, column),) = hint.options().items()
        unknown = run("start", *PLACES, "--yes", option, "nope")
        assert "column 'nope' does not exist in orders" in unknown.stderr
        assert run("start", *PLACES, "--yes", option, f"{column},n").exit_code == 0
        assert load(orders.parent / "job.toml").tables[0].key == ["id", "n"]


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("id,n,d\n1,5,1\n1,5,2\n", "d"),
        ("a,order_id\n1,1\n1,1\n", "order_id"),
        ("a,b\n1,1\n1,1\n", "a"),
        ("1,5\n2,5\n", "c1"),
    ],
)
def test_the_key_that_is_offered_is_one_that_the_files_have(run: Run, orders: Path, text: str, key: str) -> None:
    (orders / "a.csv").write_text(text)
    refused = run("start", *PLACES, "--yes")
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        assert hint.options() == {"--key": key}
        assert run("start", *PLACES, "--yes", "--key", key).exit_code == 0
        assert load(orders.parent / "job.toml").tables[0].key == [key]


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("verb", ["init", "start --yes"])
def test_files_of_no_byte_are_said_to_be_empty(run: Run, orders: Path, verb: str) -> None:
    (orders / "a.csv").write_text("")
    refused = run(*verb.split(), *PLACES, "--key", "id")
    assert "orders: every file is empty, of 0 bytes" in refused.stderr
    assert [one.name for one in orders.parent.iterdir()] == ["orders"]
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("give a folder or a file with rows")
        (orders / "a.csv").write_text("id,n\n1,5\n")
        assert run(*verb.split(), *PLACES, "--key", "id").exit_code == 0


@pytest.mark.parametrize(
    ("words", "said", "more"),
    [
        (("--to", "w.duckdb"), "--to works only with --from", ("--from", "orders")),
        (("--from", "orders"), "--from works only with --to", ("--to", "warehouse.duckdb")),
    ],
)
@pytest.mark.usefixtures("orders", "started")
def test_both_places_are_needed(run: Run, words: tuple[str, ...], said: str, more: tuple[str, ...]) -> None:
    refused = run("start", *words, "--yes")
    assert said in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        assert set(hint.options()) == {more[0]}
        assert run("start", *words, *more, "--yes").exit_code == 0


@pytest.mark.usefixtures("started")
@pytest.mark.parametrize("typed_option", ["--key id", "--name x", "--changes c", "--table t"])
def test_an_option_of_a_first_job_needs_its_places(run: Run, orders: Path, typed_option: str) -> None:
    refused = run("start", *typed_option.split())
    option = typed_option.split()[0]
    assert f"{option} works only with --from and --to" in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says(f"leave {option} out")
        assert run("init", *PLACES).exit_code == 0
        assert run("start").exit_code == 0


ODD = st.text(st.sampled_from("ab c'\"#\n\t-[\\é\x7f$=,:"), min_size=1, max_size=8)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(name=ODD, to=ODD)
def test_any_name_of_a_file_is_one(folder: Path, name: str, to: str) -> None:
    """The config has the names as they are, whatever is in them; typed again it is the same."""
    (folder / name).write_text("id,n\n1,5\n2,5\n")
    asked = Asked(source=f"./{name}" if ":" in name else name, to=f"duckdb:{to}", key=("id",))
    text, refused = "", ""
    try:
        text = template(drafted(asked, folder))
    except BackfillError as error:
        refused = error.message
    finally:
        (folder / name).unlink()
    if refused:  # a pattern of DuckDB's, a name that Spark cannot read, or one that says it is not complete
        assert re.search("init cannot read files with|Spark cannot read a name|there are no files", refused)
        return
    told = tomli.loads(text)
    assert (told["upstream"]["snapshot"]["path"], told["sink"]["path"]) == (asked.source, to)
    assert "\n" not in text.partition("\n# To check it:")[0]


def test_paths_are_written_for_the_folder_of_the_config(run: Run, orders: Path, monkeypatch: Any) -> None:
    folder = orders.parent
    (folder / "conf").mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for number, source in enumerate(["orders", "./orders/", str(orders), "~/orders", "orders/*.csv"]):
        file = f"conf/{number}.toml"
        done = run("init", file, "--from", source, "--to", "w.duckdb")
        assert done.exit_code == 0, done.output
        told = load(folder / file)
        told.open_upstream().pin()
        assert told.tree["upstream"]["snapshot"]["path"].startswith(str(orders))
        assert told.tree["sink"]["path"] == str(folder / "w.duckdb")


@pytest.mark.parametrize(
    ("to", "sink"),
    [
        ("w.duckdb", ("duckdb", "path", "w.duckdb")),
        ("w.db", ("duckdb", "path", "w.db")),
        ("duckdb:w", ("duckdb", "path", "w")),
        ("delta:lake/orders", ("delta", "table", "lake/orders")),
        ("delta:lake", ("delta", "table", "./lake")),
        ("iceberg:lake/{table}", ("iceberg", "table", "lake/{table}")),
        ("iceberg:cat.shop.orders", ("iceberg", "table", "cat.shop.orders")),
        ("postgres:host=h dbname=d", ("postgres", "dsn", "host=h dbname=d")),
        ("postgres:host=/run/pg dbname=d", ("postgres", "dsn", "host=/run/pg dbname=d")),
        ("there", ("delta", "table", "./there")),
        ("other", ("iceberg", "table", "./other")),
        ("file", ("duckdb", "path", "file")),
    ],
)
def test_a_sink_is_known_by_its_form_or_by_what_lies_there(
    orders: Path, to: str, sink: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    no_look(monkeypatch)
    (orders.parent / "there" / "_delta_log").mkdir(parents=True)
    (orders.parent / "other" / "metadata").mkdir(parents=True)
    (orders.parent / "other" / "metadata" / "v1.metadata.json").touch()
    (orders.parent / "file").write_bytes(b"12345678DUCK")
    told = tomli.loads(template(drafted(Asked("orders", to=to), Path.cwd())))["sink"]
    assert told == {"type": sink[0], sink[1]: sink[2]}


def test_a_sink_that_does_not_show_what_it_is_asks_for_its_type(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_look(monkeypatch)
    refused = run("init", "--from", "orders", "--to", "lake/orders")
    assert "--to lake/orders: it does not show what it is to be" in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        assert "--to delta:lake/orders, or --to duckdb:lake/orders, or --to iceberg:lake/orders" in hint.hint
        option, place = "--to", hint.options()["--to"]
        assert run("init", "--from", "orders", option, place).exit_code == 0


URL = "postgresql://app:p%40ss@h:5432/shop"


@pytest.mark.parametrize(
    ("typed_url", "written"),
    [
        (URL, "${env:SHOP_URL}"),
        ("${env:SHOP_URL}", "${env:SHOP_URL}"),
        ("postgresql://app@h/shop", "postgresql://app@h/shop"),
        ("postgresql://app:${env:PW}@h/shop", "postgresql://app:${env:PW}@h/shop"),
        ("postgresql://h/shop?user=a%20b&sslmode=require", "postgresql://h/shop?user=a%20b&sslmode=require"),
    ],
)
def test_a_password_never_gets_into_a_config(
    orders: Path, monkeypatch: pytest.MonkeyPatch, typed_url: str, written: str
) -> None:
    monkeypatch.setenv("SHOP_URL", URL)
    monkeypatch.setenv("PW", "s3cret")
    no_look(monkeypatch)
    text = template(drafted(Asked("orders", to=typed_url), Path.cwd()))
    assert tomli.loads(text)["sink"] == {"type": "postgres", "dsn": written}
    assert "p%40ss" not in text
    assert "s3cret" not in text
    (orders.parent / "job.toml").write_text(text)
    assert load(orders.parent / "job.toml").tree["sink"]["dsn"] == written


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:hunter2@h/shop",
        "postgresql://h/shop?user=app&password=hunter2",
        "postgresql://h/shop?pass%77ord=hunter2",
        "postgres://:hunter2@h",
        "postgresql://app:my hunter2@h/shop",
    ],
)
def test_a_password_that_no_variable_holds_is_refused_and_not_shown(
    run: Run, folder: Path, orders: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    no_look(monkeypatch)
    for more in (["--sink", "postgres"], ["--name", "A B"], ["--changes", "a\udcff"]):
        assert "hunter2" not in run("init", "--from", "orders", "--to", url, *more).output
    refused = run("init", "--from", "orders", "--to", url)
    assert (refused.exit_code, (folder / "job.toml").exists()) == (2, False)
    assert "hunter2" not in refused.output
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        assert hint.options()["--to"] == "'${env:WAREHOUSE_URL}'"
        monkeypatch.setenv("WAREHOUSE_URL", url)
        assert run("init", "--from", "orders", "--to", "${env:WAREHOUSE_URL}").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "postgres:host=h password=hunter2 dbname=d"),
        ("--to", "host=h password=hunter2 dbname=d"),
        ("--to", "postgresql://app:my/hunter2@h/shop"),
        ("--from", "postgres:host=h password=hunter2 dbname=d"),
        ("--from", "host=h password=hunter2 dbname=d"),
        ("--from", "kafka://h/t?ssl.key.pem=-----BEGIN PRIVATE KEY-----hunter2"),
        ("--from", "iceberg:lake.db.orders?type=rest&uri=http://h&token=hunter2"),
        ("--from", "iceberg:lake.db.orders?type=sql&uri=postgresql+psycopg2://u:hunter2@h/db"),
        ("--changes", "kafka:h/t?sasl.password=hunter2"),
        ("--from", "https://acc.blob.core.windows.net/box/x?sv=1&sig=hunter2"),
        ("--from", "files:s3://AKIA:hunter2@bucket/x"),
        ("--changes", "https://b.s3.amazonaws.com/k?X-Amz-Signature=hunter2"),
        ("--to", "delta:abfss://hunter2:hunter2@acc/box"),
    ],
    ids="_".join,
)
def test_a_secret_is_found_in_every_form_of_a_place(run: Run, folder: Path, orders: Path, words: Any) -> None:
    """Also where nothing is looked at: without a terminal, the words are shown as they can be typed again."""
    places = {"--from": "orders", "--to": "w.duckdb"} | dict([words])
    for verb in ("init", "start"):
        refused = run(verb, *(word for pair in places.items() for word in pair))
        assert refused.exit_code == 2
        assert "hunter2" not in refused.output
        with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
            hint.says("${env:")
    assert not (folder / "job.toml").exists()


def test_what_a_variable_holds_is_not_taken_for_a_file_and_not_shown(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DSN", "host=h password=hunter2 dbname=d")
    refused = run("init", "--from", "${env:DSN}", "--to", "w.duckdb")
    assert (refused.exit_code, "hunter2" in refused.output) == (2, False)
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("name the type, too: --from 'TYPE:${env:DSN}'")


def test_a_long_place_and_long_names_are_written_as_they_are(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path of more than a line, and columns at whose blanks the schema could be broken."""
    long = folder / ("a" * 60) / ("b  b" * 15)
    long.mkdir(parents=True)
    names = ["id", *(f"column, number {n} of many" for n in range(12))]
    (long / "a.json").write_text("".join(json.dumps(dict.fromkeys(names, row)) + "\n" for row in range(3)))
    no_look(monkeypatch)
    url = f"postgresql://app@{'h' * 60}.example.com:5432/shop?sslmode=verify-full&application_name=backfill"
    done = run("init", "--from", str(long), "--to", url, "--key", "id")
    assert done.exit_code == 0, done.output
    told = load(folder / "job.toml")
    assert told.tree["upstream"]["snapshot"]["path"] == str(long)
    assert told.tree["sink"]["dsn"] == url
    assert [*of_ddl(told.tree["upstream"]["snapshot"]["schema"])] == names


def no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """No server is asked."""
    sink = registry.sink
    monkeypatch.setattr(registry, "sink", lambda kind: replace(sink(kind), look=None))


def test_a_variable_that_is_not_set_is_named(run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_look(monkeypatch)
    refused = run("init", "--from", "orders", "--to", "${env:NOT_SET_URL}")
    assert "${env:NOT_SET_URL}: not set in the environment" in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says("correct it, or name the place itself")
        assert run("init", "--from", "orders", "--to", "postgresql://h/shop").exit_code == 0


def test_two_that_write_one_config_at_once_write_one(folder: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        made = pool.map(_create, [f"{number}" * 100_000 for number in range(8)])
    assert sum(made) == 1
    text = (folder / "job.toml").read_text()
    assert (len(text), len(set(text))) == (100_000, 1)
    assert [one.name for one in folder.iterdir()] == ["job.toml"]


def _create(text: str) -> bool:
    try:
        _written.create(Path("job.toml"), text)
    except FileExistsError:
        return False
    return True


def test_a_config_appears_without_hard_links_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(_written.os, "link", link)
    _written.create(Path("job.toml"), "x")
    assert [(one.name, one.read_text()) for one in folder.iterdir()] == [("job.toml", "x")]


def test_a_config_of_files_has_forty_lines_at_most(run: Run, folder: Path, orders: Path) -> None:
    (folder / "changes").mkdir()
    envelope = '{"before":null,"after":{"id":9,"customer":7,"amount":"1.00","made":1767262200000000},"op":"c"}\n'
    (folder / "changes" / "1.json").write_text(envelope)
    (orders / "a.csv").write_text(
        "id,customer,amount,made\n1,7,10.50,2026-01-01 10:00:00\n2,7,1.25,2026-01-02 11:00:00\n"
    )
    assert run("init", *PLACES, "--changes", "changes").exit_code == 0
    text = (folder / "job.toml").read_text()
    assert len(text.splitlines()) <= 40
    assert "csv" not in {line.partition(" ")[0] for line in text.splitlines()}
    assert max(len(line) for line in text.splitlines()) <= 105
    assert run("init", "full.toml", *PLACES, "--changes", "changes", "--full").exit_code == 0
    short, full = (load(folder / name) for name in ("job.toml", "full.toml"))
    assert short.tree == full.tree
    assert len((folder / "full.toml").read_text().splitlines()) > 100


def test_every_line_of_a_generated_config_is_explained(run: Run, folder: Path, orders: Path) -> None:
    """Beside it, or above it; names and types explain themselves."""
    assert run("init", *PLACES).exit_code == 0
    lines = (folder / "job.toml").read_text().splitlines()
    options = [(before, line) for before, line in pairwise(lines) if line[:1].isalpha()]
    unexplained = [line for before, line in options if "# " not in line and not before.startswith("#")]
    assert unexplained == ['type = "files"', 'name = "orders"', 'type = "duckdb"']


def test_a_folder_that_nobody_may_read_is_named(run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    orders.chmod(0)
    refused = run("init", *PLACES)
    orders.chmod(0o755)
    assert (refused.exit_code, "orders" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "orders: there are no files"),
        ({"_SUCCESS": "", "a.tmp": "x"}, "orders: there are no files"),
        ({"a.csv": "id\n1\n", "b.json": '{"id": 1}\n'}, "of different formats: csv, json"),
    ],
)
def test_a_folder_without_rows_of_one_form_is_refused(
    run: Run, folder: Path, files: dict[str, str], said: str
) -> None:
    (folder / "orders").mkdir()
    for name, text in files.items():
        (folder / "orders" / name).write_text(text)
    refused = run("init", *PLACES)
    assert (refused.exit_code, (folder / "job.toml").exists()) == (2, False)
    assert said in refused.stderr
    if "formats" in said:
        with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
            assert hint.options() == {"--from": "'orders/*.csv'"}
            assert run("init", "--from", "orders/*.csv", *PLACES[2:]).exit_code == 0


WRONG: dict[str, tuple[list[str], str, str, list[str]]] = {
    "a place that is empty": (
        ["--from", "", "--to", "w.duckdb"],
        "--from '' names no place",
        "name a path or a URL: --from data/orders",
        [*PLACES],
    ),
    "a name that is no text": (
        ["--from", "a\udcff", "--to", "w.duckdb"],
        "cannot be written into a config",
        "rename it",
        [*PLACES],
    ),
    "a name that no job can have": (
        [*PLACES, "--name", "A B"],
        "--name 'A B': a job's name is",
        "--name orders",
        [*PLACES, "--name", "orders"],
    ),
    "a place and a type": (
        ["--from", "orders", "--upstream", "kafka"],
        "--upstream is for a config without a place",
        "leave --upstream out",
        ["--from", "orders"],
    ),
    "a sink that its own options refuse": (
        ["--from", "orders", "--to", "iceberg:a.b.c.d."],
        "--to iceberg:a.b.c.d.: 1 problem",
        "correct it",
        ["--from", "orders", "--to", "iceberg:a.b.c"],
    ),
    "several tables of files": (
        [*PLACES, "--table", "a", "--table", "b"],
        "but several tables are named",
        "name one: --table orders",
        [*PLACES, "--table", "a"],
    ),
    "a key of no column": (
        [*PLACES, "--key", "nope"],
        "column 'nope' does not exist in orders",
        "--key id",
        [*PLACES, "--key", "id"],
    ),
    "a key of nothing": (
        [*PLACES, "--key", " ,"],
        "--key ' ,' names no column",
        "--key id",
        [*PLACES, "--key", "id"],
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_is_refused_with_the_way_on(run: Run, folder: Path, orders: Path, what: str) -> None:
    words, said, way, right = WRONG[what]
    refused = run("init", *words)
    assert (refused.exit_code, (folder / "job.toml").exists()) == (2, False), refused.output
    assert said in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        hint.says(way)
        done = run("init", *right)
        assert done.exit_code == 0, done.output


def test_a_connector_that_cannot_look_leads_to_a_config_to_fill_in(
    run: Run, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of another package may be: as the upstream, as its changes, and as the sink."""
    upstream, sink = registry.upstream, registry.sink

    def blind(kind: str) -> Any:
        one = upstream(kind)
        able = one.look if kind == "files" else None
        return replace(one, look=able, changes=one.changes and replace(one.changes, look=None))

    monkeypatch.setattr(registry, "upstream", blind)
    monkeypatch.setattr(registry, "sink", lambda kind: replace(sink(kind), place=None))
    for number, (words, said) in enumerate(
        [
            (["--from", "kafka:x"], "the data of an upstream of type kafka cannot be looked at"),
            (["--from", "orders", "--changes", "kafka:x"], "changes of type kafka cannot be looked at"),
            (["--from", "orders", "--to", "delta:x"], "a sink of type delta cannot be named by its place"),
        ]
    ):
        refused = run("init", *words)
        assert said in refused.stderr, refused.output
        with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
            ((verb, *rest),) = hint.commands()
            assert run(verb, f"{number}.toml", *rest).exit_code == 0
