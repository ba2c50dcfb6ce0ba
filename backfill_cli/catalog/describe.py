"""The catalog's tables as a page of documentation, from the comments in the file itself.

`python -m backfill_cli.catalog.describe > docs/catalog.md`
"""

import sys
from typing import TYPE_CHECKING

from backfill_cli.catalog.store import shipped_migrations

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_HEAD = """# The catalog

<!-- Written by `python -m backfill_cli.catalog.describe > docs/catalog.md`; a test checks it. -->

`backfill` keeps the state of its jobs in one small DuckDB file: `--catalog`, else `BACKFILL_CATALOG`, else
`.backfill/catalog.duckdb`. It holds no secrets and none of your rows. Every access opens it for milliseconds, so
you can query it while jobs run. DuckDB lets one process at a time open the file: close your own session soon,
because the jobs wait for it.

```
duckdb -readonly .backfill/catalog.duckdb -c "
  SELECT make_timestamp_ms(committed_ms) AS at, rows_written, lag_ms FROM ledger WHERE job = 'orders' ORDER BY at"
```

Do not change anything in it: use the commands (`backfill pause`, `throttle`, `resume`, `stop`). Times are
milliseconds since 1970, UTC.

Beside `catalog.duckdb` are `.lock` and `.queue` (which decide who opens it next), `.JOB.runner` (locked while a
runner has the job), `.wake` (written by each command) and, after an upgrade, `.v1`, `.v2`, … (copies of the older
file). The logs of the runners are in the same folder, in `logs/JOB.log`.
"""


def describe() -> str:
    """Markdown: a section per table, a row per column. Reads the migrations, not a catalog."""
    import duckdb

    with duckdb.connect(":memory:") as db:
        for script in shipped_migrations():
            db.execute(script)
        tables = db.execute(
            "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal ORDER BY table_oid"
        ).fetchall()
        sections = [_section(db, name, comment) for name, comment in tables]
    return "\n".join([_HEAD, *sections])


def _section(db: "DuckDBPyConnection", table: str, comment: str | None) -> str:
    columns = db.execute(
        """SELECT column_name, lower(data_type), is_nullable, comment FROM duckdb_columns()
           WHERE table_name = ? ORDER BY column_index""",
        [table],
    ).fetchall()
    lines = [f"## {table}", "", comment or "", "", "| column | type | what |", "| --- | --- | --- |"]
    for name, kind, nullable, what in columns:
        lines.append(f"| `{name}` | {kind}{', or NULL' if nullable else ''} | {what or ''} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(describe())
