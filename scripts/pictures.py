"""The pictures of the docs: a report, and a notebook, of real jobs over orders that keep changing.

python scripts/pictures.py [report] [notebook]
"""

import html
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from demo_upstream import write_snapshot

from backfill_cli.catalog import Catalog
from backfill_cli.view.model import read_jobs

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
ROWS = 400_000
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ font: 14px/1.5 ui-monospace, Menlo, Consolas, monospace; margin: 24px; color: #1f2933; background: #fff; }}
div {{ display: grid; grid-template-columns: 5rem 1fr; margin-bottom: 6px; }} div > span {{ color: #52606d; }}
pre {{ font: inherit; margin: 0; padding: 6px 10px; white-space: pre-wrap; overflow-wrap: anywhere; }}
.code {{ background: #f2f5f8; border: 1px solid #d9e0e7; border-radius: 4px; }}
</style>{}"""


@contextmanager
def upstream() -> Iterator[Path]:
    """A folder with scripts/demo's upstream and config, while a writer changes the upstream."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_snapshot(folder / "upstream/orders", ROWS, files=8)
        shutil.copy(ROOT / "sample_configs/quickstart.toml", folder / "job.toml")
        write = [sys.executable, str(ROOT / "scripts/demo_upstream.py"), "write", str(folder / "upstream/changes")]
        writer = subprocess.Popen([*write, "--rows", str(ROWS)])
        try:
            while not any((folder / "upstream").glob("changes/*.json")):
                time.sleep(0.1)
            yield folder
        finally:
            writer.terminate()
            writer.wait()


def report(folder: Path) -> None:
    """A job that was throttled, killed, resumed and paused, and is caught up."""
    started: list[subprocess.Popen[bytes]] = []

    def backfill(*words: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen([sys.executable, "-m", "backfill_cli", *words], cwd=folder))
        return started[-1]

    def done(*words: str) -> None:
        assert backfill(*words).wait() == 0, words

    try:
        runner = backfill("start")
        jobs = Catalog(folder / ".backfill/catalog.duckdb")
        while not any(one.rows_read for one in read_jobs(jobs, None)):
            time.sleep(0.5)
        time.sleep(6)
        done("throttle", "--rate", "8000", "--wait")
        time.sleep(8)
        runner.kill()
        runner.wait()
        time.sleep(10)
        backfill("resume")
        time.sleep(15)
        done("throttle", "--rate", "none", "--wait")
        done("wait", "--for", "caught-up", "--timeout", "10m")
        time.sleep(15)
        done("pause", "--wait")
        time.sleep(12)
        done("resume", "--wait")
        time.sleep(20)
        done("report", "--out", "report.html")
        picture(folder / "report.html", DOCS / "report.png", 1060, 1430)
        done("stop", "--wait")
    finally:
        for one in started:
            one.kill()


def notebook(folder: Path) -> None:
    """The cells of docs/python.md with what they print."""
    import nbformat
    from nbclient import NotebookClient

    cells = re.findall(r"^```python\n(.*?)^```", (DOCS / "python.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    run = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.rstrip()) for cell in cells])
    NotebookClient(run, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    shown = "".join(_cell(cell) for cell in run.cells)
    (folder / "notebook.html").write_text(PAGE.format(shown), "utf-8")
    texts = [html.unescape(text).splitlines() for text in re.findall("<pre[^>]*>(.*?)</pre>", shown, re.DOTALL)]
    lines = sum(1 + len(line) // 105 for text in texts for line in text)
    picture(folder / "notebook.html", DOCS / "notebook.png", 1060, 21 * lines + 20 * len(texts) + 48)


def _cell(cell: Any) -> str:
    """Its code, and what it said; a line that came several times is shown once, with their number."""
    number = cell.execution_count
    said = "".join(one.get("text") or one.get("data", {}).get("text/plain", "") for one in cell.outputs).rstrip()
    runs = ((line, sum(1 for _ in run)) for line, run in groupby(said.splitlines()))
    told = "\n".join(line if count == 1 else f"{line}  × {count}" for line, count in runs)
    shown = f'<div><span>[{number}]:</span><pre class="code">{html.escape(cell.source)}</pre></div>'
    return shown + (f"<div><span></span><pre>{html.escape(told)}</pre></div>" if told else "")


def picture(page: Path, file: Path, width: int, height: int) -> None:
    """The page, as a browser shows it in a window of that size."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    quiet = ("--disable-background-networking", "--no-first-run", f"--user-data-dir={page.parent / 'profile'}")
    look = ("--blink-settings=preferredColorScheme=1", f"--window-size={width},{height}", f"--screenshot={file}")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
    subprocess.run([browser, *flags, *quiet, *look, page.as_uri()], check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    for make in (report, notebook):
        if len(sys.argv) == 1 or make.__name__ in sys.argv[1:]:
            with upstream() as place:
                make(place)
