"""`backfill report`: a job as one HTML page. Changes nothing."""

import time
from pathlib import Path
from typing import Annotated

import typer

from backfill_cli.errors import UsageError
from backfill_cli.view.console import answer_json, say

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog

OutOption = Annotated[
    str, typer.Option("--out", metavar="FILE", help="Where to write it; replaced if it is there.")
]


def report(
    job: JobArgument = None,
    out: OutOption = "report.html",
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Write a job's report as one HTML file: progress, curves with the commands that acted, splits, config."""
    from backfill_cli.catalog.ledger import KEPT
    from backfill_cli.view.read import read_jobs
    from backfill_cli.view.report import Reported
    from backfill_cli.view.report import report as page

    store = open_catalog(catalog)
    name = named_job(store, job).name
    (view,) = read_jobs(store, name)
    now_ms = time.time_ns() // 1_000_000
    told = Reported(view, store.totals(name), store.ledger(name, KEPT), store.definition(name).config, now_ms)
    text = page(told)
    try:
        part = Path(f"{out}.part")
        part.write_text(text, "utf-8")
        part.replace(out)
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}", "name another file: --out FILE") from None
    if as_json:
        answer_json({"schema": 1, "job": name, "file": out, "bytes": len(text.encode())})
    else:
        say(f"job {name}: wrote {out}")
