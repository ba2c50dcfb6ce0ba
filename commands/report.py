"""`backfill report`: a job as one HTML page, or two side by side. Changes nothing."""

import json
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from backfill_cli.catalog import Catalog, wall_clock_ms
from backfill_cli.catalog.ledger import KEPT
from backfill_cli.errors import UsageError, command
from backfill_cli.view.answers import WrittenReport
from backfill_cli.view.console import answer_json, say
from backfill_cli.view.model import read_jobs
from backfill_cli.view.report import Reported
from backfill_cli.view.report import report as page

from ._options import CatalogOption, JobArgument, JsonOption, job_names, named_job, open_catalog

EXAMPLES = (
    "backfill report --out report.html",
    "backfill report orders --beside customers",
)

OutOption = Annotated[
    str,
    typer.Option("--out", metavar="FILE", help="Where to write it, replacing what is there; - for stdout."),
]
STDOUT = "-"
BesideOption = Annotated[
    str | None,
    typer.Option("--beside", metavar="JOB", help="Another job, to compare.", autocompletion=job_names),
]


def report(
    job: JobArgument = None,
    out: OutOption = "report.html",
    beside: BesideOption = None,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Write a job's report as one HTML file: progress, curves with the commands marked, parts, config."""
    store = open_catalog(catalog)
    name = named_job(store, job).name
    jobs = [name] if beside is None else [name, named_job(store, beside).name]
    if out == STDOUT and as_json:
        raise UsageError("--json and --out - both write to stdout", command(f"report {name} --json"))
    text = page(*(_reported(store, one) for one in jobs))
    if out == STDOUT:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        _write_whole(Path(out), text)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}", "name another file: --out FILE") from None
    if as_json:
        answer_json(WrittenReport(name, beside, out, len(text.encode())))
    else:
        say(f"job {' beside '.join(jobs)}: wrote {out}")


def _write_whole(file: Path, text: str) -> None:
    """The file has this text, or is as it was before: what is written first is a new file beside it."""
    part = file.parent / f".{file.name}.{secrets.token_hex(4)}.part"
    with part.open("x", encoding="utf-8") as written:
        try:
            written.write(text)
            written.flush()
            part.replace(file)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def _reported(store: Catalog, name: str) -> Reported:
    from backfill_cli.config.toml import spell_toml  # help does without: it is made where only typer is installed

    (view,) = read_jobs(store, name)
    _, totals, taken = store.news(name, 0)
    config = spell_toml(json.loads(store.definition(name).config))
    return Reported(view, totals, store.ledger(name, KEPT), taken, store.runs(name), config, wall_clock_ms())
