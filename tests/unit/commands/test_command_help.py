"""Help: each page fits its terminal, each example runs, and what is made of it says the same."""

import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_builders import CONFIG, Run, end_job, fake_engine, make_job

from backfill_cli.catalog import Catalog
from backfill_cli.main import GROUPS, VERBS
from backfill_cli.manual.files import pages
from backfill_cli.model.change import Change
from backfill_cli.model.cutover import CutoverReport, Found, Gate, Live, LiveName
from backfill_cli.model.job import JobState
from backfill_cli.model.refill import Extent, Refill
from backfill_cli.model.reports import PlannedDerived, PlanReport, ReadByDerived
from backfill_cli.model.verify import Asked, TableVerdict, VerifyReport
from backfill_cli.view.help import COMMON, Page, text

PAGES = pages()
EXAMPLES = [(one.path, line) for one in PAGES for line in one.examples]
ENDED = ("wait", "status")
"""Verbs whose examples show the job's end: `orders` is done."""
EQUAL = VerifyReport("orders", 5, (TableVerdict("orders", "orders", True, 1, 1),), 1.0)


class Terminal(io.StringIO):
    """Of a person who agrees."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("of", PAGES, ids=lambda one: one.path)
@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_page_fits_its_terminal(of: Page, width: int) -> None:
    shown = text(of, width, colour=False)
    assert max(map(len, shown.splitlines())) <= width
    assert "\x1b" not in shown
    assert re.sub(r"\x1b\[\d*m", "", text(of, width, colour=True)) == shown
    assert not re.search(r"<\w+>|\bTEXT\b|`|\bNone\b|\n\n\n", shown)


@pytest.mark.parametrize("of", PAGES, ids=lambda one: one.path)
def test_each_option_is_said_and_what_follows_it_is_named(of: Page) -> None:
    for rows in of.options.values():
        for row in rows:
            assert re.fullmatch(r"\S.*[.]", row.said), row
            assert re.fullmatch(r"|[A-Z]+|\[HOST:\]PORT|caught-up\|forever", row.value), row
    assert of.examples


def test_every_verb_has_a_page() -> None:
    shown = [one.path for one in PAGES if one.path.count(" ") < 2]
    assert shown == ["backfill", *(f"backfill {verb}" for verb in VERBS)]


@pytest.mark.parametrize("of", PAGES[1:], ids=lambda one: one.path)
def test_options_that_most_verbs_have_come_last_and_say_the_same_everywhere(of: Page) -> None:
    assert list(of.options)[-1] in (COMMON, "Options")
    every = {row for one in PAGES[1:] for row in one.options.get(COMMON, ())}
    assert len(every) == len({row.names for row in every}) == 3
    for title, rows in of.options.items():
        assert title == COMMON or not {"--json", "--catalog"} & {name for row in rows for name in row.names}


def test_the_help_has_every_verb_in_its_group(run: Run) -> None:
    shown = re.findall(r"^(?:(\S.*):|  (\w+) +(.+))$", run("--help").stdout.partition("Options:")[0], re.MULTILINE)
    told: dict[str, dict[str, str]] = {}
    for title, verb, said in shown:
        if title:
            told[title] = {}
        else:
            told[list(told)[-1]][verb] = said
    assert {title: verbs for title, verbs in told.items() if verbs} == GROUPS
    assert max(len(said) for group in GROUPS.values() for said in group.values()) <= 60 - 12


def test_help_of_a_verb_can_be_asked_for_in_either_way(run: Run) -> None:
    for words in ((), ("start",), ("config",), ("config", "show")):
        asked, other = run("help", *words), run(*words, "--help")
        assert (asked.exit_code, asked.stdout) == (other.exit_code, other.stdout) == (0, other.stdout)
    assert run("help", "start").stdout.startswith("Usage: ")
    assert run("help", "help").stdout == run("--help").stdout
    alone = run("config")
    assert (alone.exit_code, alone.stdout) == (2, run("config", "--help").stdout)


def test_the_help_imports_no_verb_and_nothing_large() -> None:
    look = "import sys; from backfill_cli.main import app; app(['--help'], standalone_mode=False)"
    look += "; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not loaded & {"duckdb", "pyspark", "pyarrow", "pydantic", "rich", "backfill_cli.catalog"}
    assert not [name for name in loaded if name.startswith("backfill_cli.commands")]


@pytest.mark.parametrize(("path", "line"), EXAMPLES, ids=[line for _, line in EXAMPLES])
def test_an_example_runs(path: str, line: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """As typed, by this program: what needs Spark, a sink or another process is told what it would find."""
    program, *words = shlex.split(line)
    assert program == "backfill"
    assert path == "backfill" or line.startswith(path)
    _world(folder, words)
    _tell(monkeypatch)
    done = run(*words)
    assert done.exit_code == 0, done.output


def _world(folder: Path, words: list[str]) -> None:
    """Rows in data/orders, two configs, and the jobs `orders` and `customers`, of which the second has ended."""
    (folder / "data/orders").mkdir(parents=True)
    (folder / "data/orders/a.csv").write_text("id,n\n1,5\n2,5\n")
    verb = words[0]
    if verb not in ("init", "start"):
        catalog = Catalog(folder / ".backfill/catalog.duckdb")
        for name in ("orders", "customers"):
            make_job(catalog, name)
            if name == "customers" or verb in ENDED:
                end_job(catalog, name, JobState.DONE)
    if "--from" not in words:
        (folder / "job.toml").write_text(CONFIG)
        (folder / "other.toml").write_text(CONFIG.replace('"orders"', '"other"', 1))


def _tell(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Refill(1, "orders", Extent(), "me@box", 5)
    monkeypatch.setattr("backfill_cli.api.refilling.refill", lambda *_: (asked, 1))
    monkeypatch.setattr("backfill_cli.api.refilling.compared", lambda *_: Asked(("orders",)))
    gates = (Gate("caught up", True, ""),)
    name = LiveName("orders", "orders_v2", "orders", Live(Found.TABLE))
    swapped = CutoverReport("orders", 5, (name,), gates, changed=True)
    gone = SimpleNamespace(known=True, tables=("orders",), gone=False, others=(), live=(), left=(), why="")
    plan = PlanReport("orders", "snapshot", "x", (), "0")
    fake_engine(monkeypatch, "loop.run", start=lambda *_: None, resume=lambda *_: None)
    fake_engine(monkeypatch, "job.checks", plan=lambda *_: plan)
    change = Change("{}", table="refunds", keys=("live",))
    planned = PlannedDerived(
        "revenue", "revenue", ("id",), (("id", "BIGINT"),), (ReadByDerived("orders", "o", ("id",)),)
    )
    joins = SimpleNamespace(change=change, planned=SimpleNamespace(rows=None), estimate_s=None, by="", lines="")
    fake_engine(
        monkeypatch,
        "job.change",
        setting=lambda *_: change,
        of_next_run=lambda _: [],
        adding=lambda *_: joins,
        adding_derived=lambda *_: SimpleNamespace(change=change, planned=[planned]),
        removing=lambda *_: change,
        removing_derived=lambda *_: change,
    )
    fake_engine(monkeypatch, "doctor", examine=lambda *_: iter(()))
    fake_engine(monkeypatch, "verify.job", verify=lambda *_: EQUAL)
    fake_engine(monkeypatch, "verify.fix", fix=lambda *_: EQUAL)
    fake_engine(
        monkeypatch,
        "cutover",
        look=lambda *_: swapped,
        cut_over=lambda *_: swapped,
        reverse=lambda *_: swapped,
    )
    fake_engine(monkeypatch, "job.drop", drop=lambda *_: gone, live_names=lambda *_: ())
    for verb in ("start", "resume"):
        for done in ("run_shown", "run_detached"):
            monkeypatch.setattr(f"backfill_cli.commands.{verb}.{done}", lambda *_, **__: None)
    typing = SimpleNamespace(stdin=Terminal("\n"), stderr=Terminal())
    monkeypatch.setattr("backfill_cli.commands.start.sys", typing)
    monkeypatch.setattr("backfill_cli.commands.logs.follow", lambda *_: iter(()))
