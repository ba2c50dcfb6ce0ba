"""`kill -9` of a chain job over Delta tables whose change data is vacuumed once taken: the sink is the source.

As in test_kill_delta, the source is written by the test itself, and the sink is read by another library.
"""

import json
import signal
from pathlib import Path

import pytest

from .test_kill_delta import CONFIG, Source, backfill, held

POINTS = ("after-prepare:2", "spool-taken", "spool-sealed", "spool-known")
CHAIN = CONFIG.replace('name = "two"', 'name = "two"\nstrategy = "chain"').replace("rate = 1000", "rate = 150")


def taken(folder: Path) -> dict[str, int]:
    """By table, the newest version that is in the spool."""
    entries = [json.loads(path.read_text()) for path in folder.glob(".backfill/spool/two/*/entry.json")]
    ends = [dict(entry["window"]["up_to"]["cursors"]) for entry in entries]
    return {table: max(int(end[table]) for end in ends if table in end) for table in "ab" if ends}


def vacuum(source: Source, up_to: dict[str, int]) -> int:
    """Change data of these versions is gone. Returns how many files that were."""
    gone = 0
    for name, version in up_to.items():
        for number in range(version + 1):
            log = source.tables[name].path / "_delta_log" / f"{number:020d}.json"
            for action in map(json.loads, log.read_text().splitlines()):
                file = source.tables[name].path / action.get("cdc", {}).get("path", "none")
                gone += file.exists()
                file.unlink(missing_ok=True)
    return gone


@pytest.mark.long
def test_deaths_while_the_snapshot_is_read_and_change_data_that_is_vacuumed_once_taken(tmp_path: Path) -> None:
    source, gone = Source(tmp_path / "source"), 0
    (tmp_path / "job.toml").write_text(CHAIN)
    for point in POINTS:
        died = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint=point)
        assert died.returncode == -signal.SIGKILL, f"{point}: {died.stderr}"
        gone += vacuum(source, taken(tmp_path))
        source.change(50)
    assert gone >= 6, "what was taken is vacuumed, up to the third death"
    assert backfill(tmp_path, "throttle", "--rate", "none").returncode == 0
    died = backfill(
        tmp_path, "start", "--config", "job.toml", "--until", "caught-up", failpoint="sink-after-table:3"
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    vacuum(source, taken(tmp_path))
    ended = backfill(tmp_path, "start", "--config", "job.toml", "--until", "caught-up")
    assert ended.returncode == 0, ended.stderr
    for name, table in source.tables.items():
        assert held(tmp_path, name) == sorted(table.rows, key=lambda row: row["id"])
    verified = backfill(tmp_path, "verify", "two", "--json")
    assert verified.returncode == 0, verified.stdout + verified.stderr


pytestmark = pytest.mark.seconds
