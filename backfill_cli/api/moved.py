"""A job that was created while the paths of a config, and its catalog, belonged to the current folder."""

import json
import os
import shlex
from pathlib import Path

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.places import DEFAULT_CATALOG
from backfill_cli.errors import UsageError, command, shell


def _is_of(file: str, config: Path) -> bool:
    """Whether a job's config file is this one, however each is spelled; empty if that is not known."""
    return file in ("", str(config.absolute())) or (os.path.exists(file) and config.samefile(file))


def refuse_moved(job: str, config: Path, store: Catalog, path: str) -> None:
    """Raises UsageError if the job of this config is in the catalog of the current folder, not in that of its own.

    Jobs were created so before the paths of a config, and its catalog, belonged to its folder. path: as typed.
    """
    here = Path(DEFAULT_CATALOG)
    if path or not here.exists() or (store.path.exists() and here.samefile(store.path)):
        return
    row = next((row for row in Catalog(here).listed() if row.name == job), None)
    if row is None or not _is_of(row.config_file, config) or job in {row.name for row in store.listed()}:
        return
    file, old = shlex.quote(str(config)), Catalog(here)
    stored = json.loads(old.definition(job).config) if job in old.names() else {}  # else its start was killed
    staging = stored.get("job", {}).get("staging")
    kept = f" and set job.staging = {json.dumps(staging, ensure_ascii=False)}," if staging else ""
    move = "" if os.path.lexists(config.name) else "move the config here: " + shell(f"mv {file} .") + "; or "
    raise UsageError(
        f"job {job!r} is in the catalog of the current folder, {here}; the catalog of a config and its relative "
        "paths now belong to the config's folder",
        move
        + f"write its paths for its own folder,{kept} and name the catalog: "
        + command(f"start --config {file} --catalog {here}"),
    )
