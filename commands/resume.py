"""`backfill resume`: end the pause of a job that runs, or run another one from its last commit."""

from pathlib import Path
from typing import Annotated

import typer

from backfill_cli.api.background import in_background
from backfill_cli.errors import UsageError
from backfill_cli.model.job import Verb

from ._options import (
    CatalogOption,
    DetachOption,
    FailOnQuarantineOption,
    IntervalOption,
    JobArgument,
    JsonOption,
    MetricsFileOption,
    MetricsPortOption,
    QuietOption,
    TimeoutOption,
    Until,
    catalog_of,
    named_job,
    open_catalog,
    seconds,
)
from ._posting import post
from ._running import run_detached, run_shown, telling

EXAMPLES = (
    "backfill resume",
    "backfill resume orders --detach --wait",
    "backfill resume --from-sink job.toml",
)

FromSinkOption = Annotated[
    str | None,
    typer.Option(
        "--from-sink", metavar="CONFIG", help="Rebuild a lost catalog from what this config's sink keeps."
    ),
]
UntilOption = Annotated[
    Until | None,
    typer.Option(
        "--until",
        help="End once caught up, or follow until stopped; later runs, too. Default: as before.",
        show_default=False,
    ),
]
WaitOption = Annotated[
    bool,
    typer.Option(
        "--wait",
        help="Wait until a running job has resumed; with --detach, until the new run has made a commit.",
    ),
]


def resume(
    ctx: typer.Context,
    job: JobArgument = None,
    until: UntilOption = None,
    from_sink: FromSinkOption = None,
    detach: DetachOption = False,
    wait: WaitOption = False,
    timeout: TimeoutOption = "5m",
    metrics_file: MetricsFileOption = None,
    metrics_port: MetricsPortOption = None,
    fail_on_quarantine: FailOnQuarantineOption = False,
    quiet: QuietOption = False,
    progress_interval: IntervalOption = None,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """End the pause of a job that runs; run another job from its last commit.

    --timeout limits --wait, and never ends a run.
    """
    limit_s = seconds(timeout, "--timeout")
    store = (
        open_catalog(catalog, above=job is not None) if from_sink is None else catalog_of(Path(from_sink), catalog)
    )
    sink_config = None
    if from_sink is not None:
        from backfill_cli.config import load

        sink_config = load(Path(from_sink))
        name = job or sink_config.job.name
    else:
        row = named_job(store, job)
        name = row.name
        if row.live and not in_background():
            of_a_run = {
                "--until": until is not None,
                "--metrics-file": metrics_file is not None,
                "--metrics-port": metrics_port is not None,
                "--fail-on-quarantine": fail_on_quarantine,
                "--progress-interval": progress_interval is not None,
            }
            if any(of_a_run.values()):
                typed = " and ".join(option for option, given in of_a_run.items() if given)
                raise UsageError(
                    f"job {name!r} has a runner already, whose options cannot change: {typed}",
                    "leave that out, or stop the runner first",
                )
            post(ctx, catalog, name, Verb.RESUME, rate=None, wait=wait, timeout=timeout, as_json=as_json)
            return
    told = telling(metrics_file, metrics_port, progress_interval, quiet, fail_on_quarantine, as_json)
    if detach:
        words = ["resume", name, *(() if until is None else ("--until", until)), *told.words]
        words += [] if from_sink is None else ["--from-sink", from_sink]
        run_detached(name, store, words, as_json, limit_s if wait else None)
        return
    from backfill_cli.config import stored_hooks
    from backfill_cli.engine.loop.run import resume as resume_job

    run_shown(
        ctx,
        name,
        store,
        told,
        sink_config.hooks if sink_config is not None else stored_hooks(store.definition(name).config),
        lambda viewer: resume_job(name, store, sink_config, until, viewer),
        rebuilt=sink_config is not None,
    )
