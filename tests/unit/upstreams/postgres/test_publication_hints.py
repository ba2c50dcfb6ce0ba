"""What a publication lacks: SQL to run, or another one in the config."""

from types import SimpleNamespace
from typing import Any

import pytest

from backfill_cli.errors import Hint, in_config, sql
from backfill_cli.upstreams.postgres.publications import missing
from backfill_cli.upstreams.postgres.tables import PgTable

TABLE = PgTable("t", 1, "public", "t", "r", "d", 0, 0, False, (), (), (), {})


@pytest.mark.parametrize(
    ("every_table", "hint"),
    [
        (False, sql('ALTER PUBLICATION "p" ADD TABLE "public"."t"')),
        (True, in_config('give the job a publication of its own: upstream.publication = "p_own"')),
    ],
)
def test_another_publication_is_asked_for_in_the_config(every_table: bool, hint: Hint) -> None:
    def execute(query: bytes | str, _parameters: Any) -> Any:
        found = [(True, False, every_table, [])] if "pubinsert" in str(query) else []
        return SimpleNamespace(fetchone=lambda: found[0], fetchall=lambda: found)

    connection: Any = SimpleNamespace(execute=execute)
    assert missing(connection, "p", [TABLE]) == [hint]
