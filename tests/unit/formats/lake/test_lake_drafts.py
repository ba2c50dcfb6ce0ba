"""Files that a death left half-written beside a lake's tables."""

import os
import time
from pathlib import Path

from pyarrow.fs import LocalFileSystem

from backfill_cli.formats.lake.blobs import OLD_S, Blobs


def test_drafts_of_a_death_go_with_the_next_file_and_those_of_others_at_work_stay(tmp_path: Path) -> None:
    dead, young, other = (tmp_path / name for name in (f".{'a' * 32}", f".{'b' * 32}", ".gitignore"))
    for path in (dead, young, other):
        path.touch()
    for path in (dead, other):
        os.utime(path, (time.time() - OLD_S - 1,) * 2)
    Blobs(LocalFileSystem(), str(tmp_path)).create("one.json", b"{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([young.name, other.name, "one.json"])
