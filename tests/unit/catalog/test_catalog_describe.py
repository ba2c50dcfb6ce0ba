"""docs/catalog.md says what the schema's comments say."""

from pathlib import Path

import pages

from backfill_cli.catalog import Catalog
from backfill_cli.catalog.store import Store

PAGE = Path(__file__).parents[3] / "docs" / "catalog.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == pages.catalog(), "python scripts/pages.py catalog > docs/catalog.md"


def test_every_table_and_column_has_a_comment(catalog: Catalog, path: Path) -> None:
    with Store(path).reading() as db:
        silent = db.execute(
            """SELECT table_name, NULL FROM duckdb_tables() WHERE coalesce(comment, '') = ''
               UNION ALL SELECT table_name, column_name FROM duckdb_columns()
               WHERE NOT internal AND coalesce(comment, '') = ''"""
        ).fetchall()
    assert silent == []
