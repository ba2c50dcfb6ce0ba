"""`backfill start`: create a job or continue one, and run it here or in the background.

With `--from` and `--to` it first does what `init` and `plan` do.
"""

import shlex
import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backfill_cli.api.moved import refuse_moved
from backfill_cli.catalog.places import DEFAULT_CONFIG
from backfill_cli.errors import Hint, NoSuchJob, UsageError, command
from backfill_cli.model.job import Verb
from backfill_cli.view.answers import NotStarted
from backfill_cli.view.console import answer_json, as_typed, say

from ._options import (
    CatalogOption,
    ConfigOption,
    DetachOption,
    ExistingOption,
    FailOnQuarantineOption,
    FileArgument,
    IntervalOption,
    JsonOption,
    MetricsFileOption,
    MetricsPortOption,
    QuietOption,
    Until,
    catalog_of,
    config_file,
    config_of,
)
from ._planning import planned
from ._running import run_detached, run_shown, telling
from ._written import (
    DATA,
    ChangesOption,
    FromOption,
    KeyOption,
    NameOption,
    TableOption,
    ToOption,
    Written,
    asked_for,
    by_init,
    config_between,
)

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import Keys
    from backfill_cli.config.draft import Asked
    from backfill_cli.config.sections import Retry
    from backfill_cli.model.limit import Limit
    from backfill_cli.model.reports import PlanReport

EXAMPLES = (
    "backfill start --from data/orders --to warehouse.duckdb",
    "backfill start --config job.toml --until caught-up",
    "backfill start --detach",
)

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Start without asking.", rich_help_panel=DATA)]
UntilOption = Annotated[Until, typer.Option("--until", help="End once caught up, or follow until stopped.")]

PausedOption = Annotated[
    bool, typer.Option("--paused", help="Pause the job before it reads a row; backfill resume begins.")
]


def start(
    ctx: typer.Context,
    file: FileArgument = None,
    config: ConfigOption = None,
    source: FromOption = None,
    to: ToOption = None,
    changes: ChangesOption = None,
    table: TableOption = None,
    key: KeyOption = None,
    name: NameOption = None,
    yes: YesOption = False,
    until: UntilOption = "forever",
    paused: PausedOption = False,
    detach: DetachOption = False,
    into_existing: ExistingOption = False,
    metrics_file: MetricsFileOption = None,
    metrics_port: MetricsPortOption = None,
    fail_on_quarantine: FailOnQuarantineOption = False,
    quiet: QuietOption = False,
    progress_interval: IntervalOption = None,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Create the job of a config and run it, or continue it if the config would give the same result.

    With --from and --to, write the config first: look at the data, show the plan, ask, then start.
    """
    from backfill_cli.config import load

    told = telling(metrics_file, metrics_port, progress_interval, quiet, fail_on_quarantine, as_json)
    written = Written()
    typed = [*(() if until == "forever" else ("--until", until)), *["--detach"] * detach]
    typed += [*["--paused"] * paused, *["--into-existing"] * into_existing]
    if source is None and to is None:
        _refuse_lone({"--changes": changes, "--table": table, "--key": key, "--name": name})
        path = config_file(file, config)
    else:
        path = Path(config_of(file, config) or DEFAULT_CONFIG)
        written = _write_config(asked_for(source, changes, to, table, key, name), path, yes, typed)
    store = catalog_of(path, catalog)
    with written.removed_if_refused(store):
        job = load(path, asking=_patiently, of_job=store.sections)
        refuse_moved(job.job.name, path, store, catalog)
        if source is not None:
            ends = None if until == "forever" else until
            planned(ctx, job, store, into_existing, lambda report: _tell(report, as_json, written), ends)
            if not yes and not _confirmed():
                again = as_typed(command(shlex.join(["start", "--config", str(path), *typed])), ctx)
                say(f"not started; {path} stays as it is\nTry: {again}")
                if as_json:
                    answer_json(NotStarted(job.job.name, str(path), again))
                return
        if detach:
            words = ["start", "--config", str(path.absolute()), "--until", until, *told.words]
            words += [*["--paused"] * paused, *["--into-existing"] * into_existing]
            run_detached(job.job.name, store, words, as_json)
            return
        from backfill_cli.engine.loop.run import start as start_job

        waiting = _waiting(job.job.name, store)
        run_shown(
            ctx,
            job.job.name,
            store,
            told,
            job.hooks,
            lambda viewer: start_job(job, store, until, into_existing, viewer, paused),
        )
        if waiting:
            _require_taken(job.job.name, store, waiting, as_json)


def _waiting(name: str, store: "Catalog") -> set[int]:
    """The ids of the commands that wait for the run, but for a `set`: the config that is given now is newer."""
    with suppress(NoSuchJob):
        return {one.id for one in store.job(name).waiting if one.verb is not Verb.SET}
    return set()


def _require_taken(name: str, store: "Catalog", waiting: set[int], answered: bool) -> None:
    """Raises UsageError where one of these would have made the job what its config says, and was refused.

    answered: whether stdout has an answer as JSON.
    """
    last = store.job(name).refused
    if last is None or last.command.id not in waiting:
        return
    said = f"{last.command.said} was refused: {last.why.said}"
    error = UsageError(f"job {name!r} is not what its config says: {said}", last.why.hint)
    error.answered = answered
    raise error


def _patiently(ask: "Callable[[], Keys]", retry: "Retry") -> "Keys":
    """The keys of tables that name none, once the upstream answers: as long as the run waits for it."""
    from backfill_cli.engine.job.resources import patiently

    told: list[str] = []

    def tell(waits: "Limit | str") -> None:
        if str(waits) not in told[-1:]:
            told.append(str(waits))
            say(told[-1])

    return patiently(ask, retry.limit_s, tell)


def _write_config(asked: "Asked", path: Path, yes: bool, typed: Sequence[str]) -> Written:
    """The config of the job between these places is there. Raises UsageError, having written nothing.

    typed: the other options of this start, for one that is typed again.
    """
    if asked.source is None:
        raise UsageError("--to works only with --from", "add the place of the data: --from data/orders")
    if asked.to is None:
        raise UsageError("--from works only with --to", "add where the rows go: --to warehouse.duckdb")
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise _unasked(asked, path, typed)
    written = config_between(asked, path)
    for line in written.said:
        say(line)
    return replace(written, words=(*written.words, *["--yes"] * yes, *typed))


def _tell(report: "PlanReport", as_json: bool, written: Written) -> None:
    """The plan on stderr, without columns; as JSON it is the answer of a start that would be refused."""
    from backfill_cli.view.reports import plan_text

    report = replace(report, refused=tuple(replace(one, hint=written.typed(one.hint)) for one in report.refused))
    say(
        plan_text(
            replace(
                report,
                tables=tuple(replace(one, columns=()) for one in report.tables),
                side_tables=(),
                then=Hint(),
            )
        )
    )
    if report.refused and as_json:
        answer_json(report)


def _refuse_lone(given: dict[str, object]) -> None:
    """Raises UsageError for an option that needs places."""
    if lone := [option for option, value in given.items() if value is not None]:
        raise UsageError(
            f"{lone[0]} works only with --from and --to", f"leave {lone[0]} out, or add --from and --to"
        )


def _unasked(asked: "Asked", path: Path, typed: Sequence[str]) -> UsageError:
    from backfill_cli.config.draft import words_of

    words = shlex.join(words_of(asked, Path.cwd()))
    file = "" if path == Path(DEFAULT_CONFIG) else f"--config {shlex.quote(str(path))} "
    return UsageError(
        "start --from asks before it starts a job, and there is no terminal to ask on",
        "to start it unasked: "
        + command(f"start {file}{words} {shlex.join(['--yes', *typed])}")
        + "; to look first: "
        + by_init(asked, path),
    )


def _confirmed() -> bool:
    """Whether the answer is yes, which Enter is, too; what was typed before the question is no answer."""
    with suppress(termios.error, OSError, ValueError):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print("Start? [Y/n] ", end="", file=sys.stderr, flush=True)
    answered = sys.stdin.readline()
    return bool(answered) and answered.strip().lower() in ("", "y", "yes")
