"""`backfill plan`: what a start would do, from metadata alone. Writes nothing."""

from pathlib import Path

from .options import CatalogOption, ConfigOption, JsonOption, open_catalog


def plan(config: ConfigOption, as_json: JsonOption = False, catalog: CatalogOption = "") -> None:
    """Show the strategy and why, splits, rows, bytes, the estimated time and warnings."""
    from backfill_cli.config import load
    from backfill_cli.engine.job.preflight import plan as plan_job
    from backfill_cli.view.reports import show_plan

    show_plan(plan_job(load(Path(config)), open_catalog(catalog)), as_json)
