"""`backfill doctor`: checks what a job needs before it runs. Changes nothing; starts Spark only to check a job."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.errors import BackfillError
from backfill_cli.model.reports import Check, Status, refused, warning

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import JobConfig


def examine(file: Path | None, catalog: "Catalog", env: Mapping[str, str]) -> Iterator[Check]:
    """Checks the machine, the catalog's place and, if a config is named, its job; yields each check when done.

    With a config it connects to what that names, as `plan` does; if an upstream or sink cannot be reached, its
    check reports that, and the others are still made.
    """
    from backfill_cli.engine.doctor import place
    from backfill_cli.engine.job import machine

    config: JobConfig | None = None
    fault: BackfillError | None = None
    if file is not None:
        from backfill_cli.config import load

        try:
            config = load(file)
        except BackfillError as error:
            fault = error
    unfit = False
    for check in machine.checks(env, frozenset() if config is None else machine.extras(config)):
        unfit = unfit or check.status is Status.FAILED
        yield check
    for check in place.checks(catalog, None if config is None else config.job.name):
        # a plan would upgrade the catalog to this version
        unfit = unfit or (check.name == "jobs" and check.status is Status.FAILED)
        yield check
    if fault is not None:
        yield refused("config", fault)
    if config is None:
        return
    from backfill_cli.engine.doctor import job

    yield job.described(config)
    if unfit:
        yield warning("plan", "not checked, because of the failures above", "correct those first")
        return
    yield from job.checks(config, catalog)
