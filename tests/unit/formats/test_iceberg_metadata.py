"""The metadata of an Iceberg table in a folder, looked at again."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from backfill_cli.formats.iceberg import metadata
from backfill_cli.formats.iceberg.metadata import Look
from backfill_cli.formats.iceberg.places import Place


def write(table: Path, version: int) -> str:
    """A new table's metadata as this version of the folder; its id."""
    schema = Schema(NestedField(1, "id", LongType(), required=True))
    told = new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, str(table))
    folder = table / "metadata"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"v{version}.metadata.json").write_text(told.model_dump_json())
    (folder / "version-hint.text").write_text(str(version))
    return f"iceberg:{told.table_uuid}"


def no_settings() -> Any:
    raise AssertionError("a table in a folder has no catalog")


def identity(look: Look) -> str | None:
    held = look.now()
    return None if held is None else held.identity


@pytest.mark.parametrize("versions", [(3, 3), (3, 2), (3, 4)])
def test_a_table_that_is_dropped_and_recreated_is_another_one(tmp_path: Path, versions: tuple[int, int]) -> None:
    look = Look(Place.of(str(tmp_path / "t")), no_settings)
    assert identity(look) is None
    first = write(tmp_path / "t", versions[0])
    assert identity(look) == first
    shutil.rmtree(tmp_path / "t")
    second = write(tmp_path / "t", versions[1])
    assert identity(look) == second
    shutil.rmtree(tmp_path / "t")
    assert identity(look) is None
    assert identity(look) is None


def test_unchanged_metadata_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    look = Look(Place.of(str(tmp_path / "t")), no_settings)
    first = write(tmp_path / "t", 1)
    held = look.now()
    monkeypatch.setattr(metadata, "_parsed", None)
    assert look.now() is held
    assert held is not None
    assert held.identity == first
