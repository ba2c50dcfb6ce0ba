"""`backfill doctor`: whether this machine, and the job of a config, have what they need. Changes nothing."""

import os
from dataclasses import replace

import typer

from backfill_cli.view.console import as_typed
from backfill_cli.view.reports import show_checks
from backfill_cli.view.waiting import each

from ._options import CatalogOption, ConfigOption, FileArgument, JsonOption, catalog_of, config_file, open_catalog

EXAMPLES = (
    "backfill doctor",
    "backfill doctor job.toml",
)


def doctor(
    ctx: typer.Context,
    file: FileArgument = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Check Java, Python, packages, clocks, the catalog's folder; with a config, what its job connects to.

    Exit code 1 if a check failed.
    """
    from backfill_cli.engine.doctor import examine

    named = None if file is None and config is None else config_file(file, config)
    found = examine(named, open_catalog(catalog) if named is None else catalog_of(named, catalog), os.environ)
    checks = (replace(one, fix=as_typed(one.fix, ctx)) for one in each(found, "checking"))
    if not show_checks(checks, as_json):
        raise typer.Exit(1)
