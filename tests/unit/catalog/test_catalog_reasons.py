"""Why a job failed stood in one line with what to type, before both were values."""

import duckdb

from backfill_cli.catalog.store import shipped_migrations
from backfill_cli.model.limit import Limit


def test_the_reasons_of_an_older_catalog_are_taken_apart_once() -> None:
    *before, taken_apart = shipped_migrations()[:12]
    with duckdb.connect() as db:
        for script in before:
            db.execute(script)
        columns = db.execute("SELECT name, type, \"notnull\" FROM pragma_table_info('jobs')").fetchall()
        empty = {"VARCHAR": "''", "BOOLEAN": "false"}
        values = [empty.get(kind, "0") if needed else "NULL" for _, kind, needed in columns]
        for name, reason in (("a", "full; to continue: make room"), ("b", "caught up")):
            db.execute(f"INSERT INTO jobs VALUES ({', '.join(values)})")
            db.execute("UPDATE jobs SET name = ?, reason = ? WHERE name = ''", [name, reason])
        db.execute(taken_apart)
        found = [Limit.stored(*row) for row in db.execute("SELECT reason, why FROM jobs ORDER BY name").fetchall()]
    assert [(one.said, str(one.hint)) for one in found] == [("full", "make room"), ("caught up", "")]
