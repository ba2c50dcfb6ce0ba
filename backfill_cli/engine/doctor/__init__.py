"""`backfill doctor`: what a job needs, looked at before it runs. Changes nothing; Spark starts for a job alone."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.errors import BackfillError
from backfill_cli.model.checkup import Check, Status, refused, warning

if TYPE_CHECKING:
    from backfill_cli.catalog import Catalog
    from backfill_cli.config import JobConfig


def examine(file: Path | None, catalog: "Catalog", env: Mapping[str, str]) -> Iterator[Check]:
    """The machine, the catalog's place and, where a config is named, its job: a check at a time, as it is done.

    With a config it connects to what that names, as `plan` does; of an upstream or sink that cannot be reached its
    check says so, and the others are made all the same.
    """
    from backfill_cli.engine.doctor import job, machine, place

    config: JobConfig | None = None
    fault: BackfillError | None = None
    if file is not None:
        from backfill_cli.config import load

        try:
            config = load(file)
        except BackfillError as error:
            fault = error
    unfit = False
    for check in machine.checks(env, frozenset() if config is None else job.extras(config)):
        unfit = unfit or check.status is Status.FAILED
        yield check
    for check in place.checks(catalog, None if config is None else config.job.name):
        # a plan would bring the catalog to this version
        unfit = unfit or (check.name == "jobs" and check.status is Status.FAILED)
        yield check
    if fault is not None:
        yield refused("config", fault)
    if config is None:
        return
    yield job.described(config)
    if unfit:
        yield warning("plan", "not looked at, because of what failed above", "correct that first")
        return
    yield from job.checks(config, catalog)
