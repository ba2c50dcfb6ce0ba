"""Why a job failed stood in one line with what to type, before both were values."""

import duckdb
import pytest

from backfill_cli.catalog.store import shipped_migrations
from backfill_cli.errors import Hint, command
from backfill_cli.model.limit import Limit
from backfill_cli.view.console import in_catalog


def taken_apart(reason: str) -> tuple[Limit, str]:
    """The reason of a failed job, and what a start was doing, as the migration leaves them."""
    *before, now = shipped_migrations()[:12]
    with duckdb.connect() as db:
        for script in before:
            db.execute(script)
        for table in ("jobs", "starters"):
            columns = db.execute(f"SELECT type, \"notnull\" FROM pragma_table_info('{table}')").fetchall()
            empty = {"VARCHAR": "''", "BOOLEAN": "false"}
            values = [empty.get(kind, "0") if needed else "NULL" for kind, needed in columns]
            db.execute(f"INSERT INTO {table} VALUES ({', '.join(values)})")
        db.execute("UPDATE jobs SET reason = ?", [reason])
        db.execute("UPDATE starters SET doing = ?", [reason])
        db.execute(now)
        ((said, why),) = db.execute("SELECT reason, why FROM jobs").fetchall()
        ((doing, nothing),) = db.execute("SELECT doing, why FROM starters").fetchall()
    assert said == Limit.stored(said, why).said
    assert nothing is None
    return Limit.stored(said, why), doing


@pytest.mark.parametrize(
    ("reason", "said", "hint"),
    [
        ("caught up", "caught up", Hint()),
        ("full; to continue: make room", "full", Hint.of("make room")),
        ("ended; to continue: backfill resume c", "ended", command("resume c")),
        (
            "full; to continue: raise a.b; then: backfill start --config FILE",
            "full",
            "raise a.b; then: " + command("start --config FILE"),
        ),
        (
            "gone; to continue: restore it, or backfill drop c --with-rows --confirm c, and start over",
            "gone",
            "restore it, or " + command("drop c --with-rows --confirm c") + ", and start over",
        ),
        (
            "gone; to continue: backfill stop c --wait; backfill drop c --sink 'it'\"'\"'s j.toml' --confirm c",
            "gone",
            command("stop c --wait") + "; " + command('drop c --sink "it\'s j.toml" --confirm c'),
        ),
        (
            r"a;\ to continue: b;\\ to end it: c; to continue: backfill resume c",
            r"a; to continue: b;\ to end it: c",
            command("resume c"),
        ),
        (r"a;\ to follow: b", "a; to follow: b", Hint()),
    ],
)
def test_the_reasons_of_an_older_catalog_are_taken_apart_once(reason: str, said: str, hint: Hint) -> None:
    found, doing = taken_apart(reason)
    assert (found.said, found.hint, doing) == (said, hint, said)


def test_what_an_older_catalog_lets_type_names_config_and_catalog() -> None:
    found, _ = taken_apart("full; to continue: raise a.b; then: backfill start --config FILE")
    assert str(in_catalog(found.hint.of_file("j.toml"), "c.duckdb")) == (
        "raise a.b; then: backfill start --config j.toml --catalog c.duckdb"
    )
