"""`backfill verify`: compare upstream and sink at one checkpoint. Changes nothing."""

from typing import Annotated

import typer

from ._options import CatalogOption, JobArgument, JsonOption, named_job, open_catalog

IndependentOption = Annotated[
    bool,
    typer.Option(
        "--independent", help="Read the snapshot's files with DuckDB; not with a transform or applied changes."
    ),
]


def verify(
    job: JobArgument = None,
    independent: IndependentOption = False,
    as_json: JsonOption = False,
    catalog: CatalogOption = "",
) -> None:
    """Compare counts and hashes by key range, then name the rows that differ. Exit 3: they differ."""
    store = open_catalog(catalog)
    name = named_job(store, job).name
    from backfill_cli.engine.verify.job import verify as verify_job
    from backfill_cli.view.verdict import show_verify

    show_verify(verify_job(name, store, independent), as_json)
