"""What gives a job another definition: `set`, `add` and `remove`, as the commands and Python ask for them."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from backfill_cli.api.posting import post
from backfill_cli.catalog import Catalog, JobRow
from backfill_cli.errors import BackfillError, Hint, UsageError, command
from backfill_cli.model.change import Change
from backfill_cli.model.job import REDEFINES, Verb
from backfill_cli.model.reports import PlannedDerived
from backfill_cli.view.answers import Posted

if TYPE_CHECKING:
    from backfill_cli.engine.job.change import Adding


@dataclass(frozen=True, slots=True)
class Asked:
    """A change that nothing refuses now, and is not posted yet. note: what to know of it.

    adding: what is known of a table that joins; planned: of derived tables.
    """

    verb: Verb
    change: Change
    note: Hint
    adding: "Adding | None" = None
    planned: Sequence[PlannedDerived] = ()

    def post(self, store: Catalog, before: JobRow, wait_s: float | None) -> Posted:
        """It is in the job's inbox. Raises as `posting.post` does."""
        posted = post(store, before, self.verb, None, wait_s, self.change.stored)
        return replace(posted, note=self.note)


def setting(store: Catalog, before: JobRow, file: Path) -> Asked:
    """The job gets the config of this file. Raises UsageError for one that would give another result."""
    from backfill_cli.config import load
    from backfill_cli.engine.job.change import of_next_run, setting

    change = setting(before.name, load(file, of_job=store.sections), store)
    later, note = of_next_run(change.keys), Hint()
    if not change.keys:
        note = Hint.of("the config is as it was")
    elif later and before.live:
        name = before.name
        note = f"{', '.join(later)}: as the next run begins: " + command(f"stop {name} --wait", f"resume {name}")
    return Asked(Verb.SET, change, note)


def adding(store: Catalog, before: JobRow, table: str, file: Path | None, into_existing: bool) -> Asked:
    """A table joins the job, checked and looked at. file: of the config that may have it; None: its name alone."""
    from backfill_cli.config import load
    from backfill_cli.engine.job.change import adding

    found = adding(
        before.name, table, None if file is None else load(file, of_job=store.sections), store, into_existing
    )
    note = f"to keep it in the job's config, add:\n{found.lines}" if found.lines else ""
    return Asked(Verb.ADD, found.change, Hint.of(note), found)


def adding_derived(
    store: Catalog, before: JobRow, derived: Sequence[str], file: Path, again: bool, into_existing: bool
) -> Asked:
    """Derived tables of this config join the job, all in one commit.

    again: those that the job has are replaced by these. into_existing: so is what their tables have.
    Raises UsageError.
    """
    from backfill_cli.config import load
    from backfill_cli.engine.job.change import adding_derived

    found = adding_derived(before.name, derived, load(file, of_job=store.sections), store, again, into_existing)
    return Asked(Verb.ADD, found.change, Hint(), planned=found.planned)


def removing(store: Catalog, before: JobRow, table: str, with_rows: bool, confirm: str | None) -> Asked:
    """A table leaves the job. confirm: the job's name again, where its rows are dropped. Raises UsageError."""
    from backfill_cli.engine.job.change import removing

    _require_confirmed(before.name, f"table {table!r}", f"--table {quote(table)}", with_rows, confirm)
    change = removing(before.name, table, store, with_rows)
    return Asked(Verb.REMOVE, change, _left_in_config(store, before, [table]))


def removing_derived(
    store: Catalog, before: JobRow, derived: Sequence[str], with_rows: bool, confirm: str | None
) -> Asked:
    """Derived tables leave the job, all in one commit. confirm: as of `removing`. Raises UsageError."""
    from backfill_cli.engine.job.change import removing_derived

    kind = "derived table " if len(derived) == 1 else "derived tables "
    options = " ".join(f"--derived {quote(one)}" for one in derived)
    _require_confirmed(before.name, kind + ", ".join(map(repr, derived)), options, with_rows, confirm)
    change = removing_derived(before.name, derived, store, with_rows)
    return Asked(Verb.REMOVE, change, _left_in_config(store, before, derived))


def _require_confirmed(job: str, what: str, options: str, with_rows: bool, confirm: str | None) -> None:
    if with_rows and confirm != job:
        said = "--confirm is missing" if confirm is None else f"--confirm names {confirm!r}"
        raise UsageError(
            f"{what} of job {job!r} would lose all rows: {said}",
            command(f"remove {job} {options} --with-rows --confirm {job}"),
        )


def _left_in_config(store: Catalog, before: JobRow, tables: Sequence[str]) -> Hint:
    file = _file_of(before)
    there = [one for one in tables if _has(store, file, one)]
    what = "it" if len(tables) == 1 else ", ".join(there)
    return Hint.of(f"remove {what} from {file}, too" if there else "")


def _file_of(job: JobRow) -> str:
    """The config's file: of the newest command that waits to redefine the job, or else of the last start."""
    waiting = (Change.read(one.payload).file for one in reversed(job.waiting) if one.verb in REDEFINES)
    return next(filter(None, waiting), job.config_file)


def _has(store: Catalog, file: str, table: str) -> bool:
    """Whether a config has this table; not, if it cannot be read any more."""
    from backfill_cli.config import load

    if not os.path.isfile(file):  # a pipe: somebody else's now, and reading it would wait for them
        return False
    with suppress(BackfillError):
        config = load(Path(file), of_job=store.sections)
        return table in [*(one.name for one in config.tables), *(one.name for one in config.derived)]
    return False
