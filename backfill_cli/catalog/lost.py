"""Catalogs whose file is gone: what is left beside it, and how to go on."""

from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.catalog.lease import is_locked

if TYPE_CHECKING:
    from backfill_cli.catalog.store import Store

LOST = "if the catalog was lost, rebuild it from the sink: backfill resume --from-sink job.toml"

_SUFFIX = ".runner"


def way_on_without(catalog: Path, otherwise: str) -> str:
    """What to type where there are no jobs: `otherwise`, unless jobs ran with the catalog and its file is gone."""
    return f"move it back; {LOST}" if left_at(catalog) else otherwise


def left_at(catalog: Path) -> list[str]:
    """The jobs that ran with a catalog on this machine, by their lock files; none while the catalog exists."""
    if catalog.exists():
        return []
    before = f"{catalog.name}."
    files = sorted(file.name for file in catalog.parent.glob(f"*{_SUFFIX}") if file.name.startswith(before))
    names = [file.removeprefix(before).removesuffix(_SUFFIX) for file in files]
    # A dot is in no job's name: a file that has one belongs to a catalog whose name is longer.
    return [name for name in names if "." not in name]


def left_behind(store: "Store") -> dict[str, bool]:
    """The same for the catalog's own path, and whether each has a runner now."""
    names = left_at(store.path)
    if not names:
        return {}
    with store.locked("look"):
        return {name: is_locked(store.path, name) for name in names}
