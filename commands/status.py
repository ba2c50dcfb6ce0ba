"""`backfill status`: what each job does, how far it is, what limits it. Changes nothing."""

from typing import Annotated

import typer

from ._options import CatalogOption, JobArgument, JsonOption, open_catalog

WatchOption = Annotated[bool, typer.Option("--watch", help="Show it live until Ctrl-C or the job's end.")]


def status(
    job: JobArgument = None,
    watch: WatchOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Show all jobs, one per line, or one job in full. With --watch --json: one line per second."""
    from backfill_cli.view.model import as_json as to_json
    from backfill_cli.view.read import read_jobs, watched_jobs

    store = open_catalog(catalog)
    if watch:
        from backfill_cli.view.live import watch_jobs

        watch_jobs(lambda: watched_jobs(store, job), as_json)
        return
    views = read_jobs(store, job)
    if as_json:
        from backfill_cli.view.console import answer_json

        answer_json(to_json(views))
    else:
        from backfill_cli.view.show import show_status

        show_status(views, in_full=job is not None)
