"""`backfill report` leaves a whole page, or everything as it was."""

import json
from pathlib import Path

import pytest
from command_builders import Run
from hint_typed import typed

from backfill_cli.catalog import Catalog

pytestmark = pytest.mark.seconds


def test_a_report_leaves_only_the_page(run: Run, folder: Path, catalog: Catalog) -> None:
    (folder / "report.html").write_text("old")
    (folder / "report.html.part").write_text("somebody else's")
    done = run("report", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["bytes"] == (folder / "report.html").stat().st_size
    assert "orders" in (folder / "report.html").read_text("utf-8")
    assert (folder / "report.html.part").read_text() == "somebody else's"
    assert sorted(one.name for one in folder.iterdir()) == [".backfill", "report.html", "report.html.part"]


@pytest.mark.parametrize("out", ["report.html", "not/there/report.html", ""])
def test_a_report_that_cannot_be_written_leaves_nothing(
    run: Run, folder: Path, catalog: Catalog, out: str
) -> None:
    (folder / "report.html").mkdir()
    refused = run("report", "--out", out)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: --out {out}: ")
    assert sorted(one.name for one in folder.iterdir()) == [".backfill", "report.html"]


def test_a_report_can_go_to_stdout(run: Run, folder: Path, catalog: Catalog) -> None:
    done = run("report", "--out", "-")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("<!doctype html>")
    assert done.stdout.endswith("</html>\n")
    assert [one.name for one in folder.iterdir()] == [".backfill"]
    both = run("report", "--out", "-", "--json")
    assert both.exit_code == 2
    with typed(both.stderr.split("Try: ", 1)[1]) as hint:
        (again,) = hint.commands()
        assert run(*again).exit_code == 0
    assert (folder / "report.html").exists()
