"""Catalogs whose file is gone: what is left beside it, and how to go on."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from backfill_cli.catalog.lease import is_locked

if TYPE_CHECKING:
    from backfill_cli.catalog.store import Store

LOST = "if the catalog was lost, rebuild it from the sink: backfill resume --from-sink job.toml"

_SUFFIX = ".runner"


def told_of(catalog: Path, left: Mapping[str, bool], otherwise: str) -> tuple[str, str]:
    """What is known where the catalog's file is missing, and what to type: `otherwise` if no job ran with it.

    left: see `left_behind`. A job that is started in a new folder has a runner before there is a catalog; nothing
    tells it apart from the last job of a catalog that was moved away while its runner was live.
    """
    said = f"there is no catalog at {catalog}"
    if not left:
        return said, otherwise
    if all(left.values()):
        jobs = ", ".join(f"job {name!r} has a runner" for name in left)
        back = f"if the catalog was moved away, move it back; {LOST}"
        return (
            f"{said}, but {jobs}: it is just starting, or runs with a catalog that was here before",
            f"backfill status, again in half a minute; {back}",
        )
    ran = ", ".join(f"{name} (it still has a runner)" if live else name for name, live in left.items())
    return f"{said}, but these jobs ran with it: {ran}", f"move it back; {LOST}"


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
    """The same for the catalog's own path, and whether each has a runner now. Takes the catalog's lock."""
    names = left_at(store.path)
    if not names:
        return {}
    with store.locked("look"):
        return {name: is_locked(store.path, name) for name in names}
