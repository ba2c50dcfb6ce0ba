"""`backfill report` leaves a whole page, or everything as it was."""

import json
from pathlib import Path

import pytest
from command_builders import Run

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
