from collections.abc import Iterator
from pathlib import Path

import pytest
from catalog_builders import Clock, claimed, with_job

from backfill_cli.catalog import Catalog, Claim


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.duckdb"


@pytest.fixture
def catalog(path: Path, clock: Clock) -> Catalog:
    """A catalog with the job 'orders', which nobody runs."""
    return with_job(path, clock)


@pytest.fixture
def claim(catalog: Catalog, clock: Clock) -> Iterator[Claim]:
    """The hold of a runner in this process on 'orders'."""
    with claimed(catalog, clock) as held:
        yield held
