"""The Python of docs/python.md, run as the cells of a notebook, against a real job of some rows."""

import os
import re
from pathlib import Path

import nbformat
import pytest
from kept_java import kept_java
from nbclient import NotebookClient

from backfill_cli.catalog import Catalog
from backfill_cli.model.job import JobState

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
CONFIG = """
[job]
name = "orders"
[upstream]
type = "files"
snapshot = { path = "snapshot", format = "json", schema = "id BIGINT, status STRING" }
changes = { path = "changes", format = "change-feed", file_format = "json" }
[[tables]]
name = "orders"
key = ["id"]
[sink]
type = "duckdb"
path = "warehouse.duckdb"
"""


def cells() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_runs_in_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.toml").write_text(CONFIG)
    for name in ("snapshot", "changes"):
        (tmp_path / name).mkdir()
    rows = (f'{{"id": {number}, "status": "new"}}\n' for number in range(1_000))
    (tmp_path / "snapshot/part-1.json").write_text("".join(rows))
    monkeypatch.delenv("BACKFILL_CATALOG", raising=False)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells()])
    with kept_java() as java:
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
        client.execute(env={**os.environ, **java})
    last = notebook.cells[-1]["outputs"][-1]
    assert int(last["data"]["text/plain"]) >= 0
    assert Catalog(tmp_path / ".backfill/catalog.duckdb").job("orders").state is JobState.STOPPED
