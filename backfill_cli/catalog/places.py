"""Where catalogs are if nobody names one, beside the job's config; what there is around a folder without one."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from backfill_cli.folders import folder_of

DEFAULT_CATALOG = ".backfill/catalog.duckdb"
DEFAULT_CONFIG = "job.toml"
_AT_MOST = 3
_LOOKED_AT = 500
"""Entries of a folder: a folder with more than these has no project in each."""


def of_config(config: Path) -> Path:
    """The catalog of a config whose user names none."""
    return beside(folder_of(config))


def beside(folder: Path) -> Path:
    """The catalog of the configs in a folder."""
    return folder / DEFAULT_CATALOG


def catalog_above(folder: Path) -> Path | None:
    """This user's catalog in the nearest folder above that has one, up to the home folder."""
    return next((beside(one) for one in _above(folder) if _is_mine(beside(one))), None)


def here_or_above() -> Path:
    """The catalog of the current folder, else the nearest one above, else where the current folder's would be."""
    here = Path(DEFAULT_CATALOG)
    return here if os.path.lexists(here) else catalog_above(Path.cwd()) or here


def around(folder: Path, name: str) -> list[Path]:
    """This user's files of that name in the folders above, below and beside one; at most three, nearest first."""
    found = (one / name for one in (*_above(folder), *_in(folder), *_beside(folder)))
    return list(islice((file for file in found if _is_mine(file)), _AT_MOST))


def home() -> Path:
    """The home folder; `~` for a user without one, as a container's can be."""
    return Path(os.path.expanduser("~"))


def nearest_spelling(file: Path) -> str:
    """The file as somebody in the current folder would type it: by its shorter path."""
    return min(str(file), os.path.relpath(file), key=len)


def _above(folder: Path) -> Iterator[Path]:
    for one in folder.parents:
        yield one
        if one == home():
            break


def _beside(folder: Path) -> Iterator[Path]:
    """Not for home folders, nor for those at the root, which can be mounts that take their time."""
    if folder not in (home(), *home().parents) and len(folder.parts) > 2:
        yield from (one for one in _in(folder.parent) if one != folder)


def _in(folder: Path) -> list[Path]:
    """Its folders, by name, without hidden ones; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            names = [one.name for one in islice(entries, _LOOKED_AT) if one.is_dir() and one.name[0] != "."]
    except OSError:
        return []
    return [folder / name for name in sorted(names)]


def _is_mine(file: Path) -> bool:
    try:
        return os.path.isfile(file) and file.stat().st_uid == os.geteuid()
    except OSError:
        return False
