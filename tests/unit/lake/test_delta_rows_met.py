"""How many rows a MERGE reads: those of the files whose statistics let them hold its keys."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.plain import rows_met


def table(folder: Path, *files: list[int | None]) -> Where:
    for ids in files:
        write_deltalake(str(folder), pa.table({"id": pa.array(ids, pa.int64())}), mode="append")
    return Where.of(str(folder), "t")


@pytest.mark.parametrize(
    ("bounds", "expected"), [((4, 9), 3), ((3, 4), 6), ((10, 11), 0), ((-5, 0), 0), (None, 6), ((1, 6), 6)]
)
def test_only_files_that_can_hold_a_key_count(
    bounds: tuple[int, int] | None, expected: int, tmp_path: Path
) -> None:
    where = table(tmp_path / "t", [1, 2, 3], [4, 5, 6])
    assert rows_met(where.open(), "id", bounds) == expected


def test_a_file_without_bounds_can_hold_any_key(tmp_path: Path) -> None:
    where = table(tmp_path / "t", [None, None], [4, 5, 6])
    assert rows_met(where.open(), "id", (5, 5)) == 5
    assert rows_met(where.open(), "other", (5, 5)) == 5
