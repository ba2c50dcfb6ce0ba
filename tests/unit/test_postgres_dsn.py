"""Connection strings: what libpq would read otherwise than it was meant is refused, and no part of it is shown."""

import pytest
from psycopg.conninfo import conninfo_to_dict

from backfill_cli.errors import UsageError
from backfill_cli.postgres_dsn import completed, parsed

FINE = (
    "postgresql://u:p%40ss@127.0.0.1:5432/x",
    "postgresql://u@[::1]:5432/x?sslmode=require",
    "postgresql:///x?host=/var/run/postgresql",
    "host=a,b port=5432,5433 dbname=x user=u password='p@ss w'",
    "postgres://u:p@h/x",
    "",
)
AMBIGUOUS = (
    "postgresql://u:hunter@two@127.0.0.1/x",
    "postgresql://u:hun/ter2@127.0.0.1/x",
    "postgresql://u:hun#ter2@127.0.0.1/x@y",
    "postgresql://u:hunter2@[::1/x",
    "hunter2",
    "password=hunter2 no equals sign",
    "host=h pasword=hunter2",
)


@pytest.mark.parametrize("dsn", FINE)
def test_a_string_that_is_fine_leads_where_it_says(dsn: str) -> None:
    told = conninfo_to_dict(dsn)
    whole = conninfo_to_dict(completed(dsn, "upstream.dsn"))
    assert {name: whole[name] for name in told} == told
    assert whole["keepalives_idle"] == "30"


def test_what_the_string_says_of_patience_stays() -> None:
    assert conninfo_to_dict(completed("host=h connect_timeout=3", "sink.dsn"))["connect_timeout"] == "3"


@pytest.mark.parametrize("dsn", AMBIGUOUS)
def test_a_password_that_is_not_escaped_is_named_and_never_shown(dsn: str) -> None:
    with pytest.raises(
        UsageError, match=r"^sink\.dsn (is not a valid libpq connection string|cannot be parsed as intended)"
    ) as refused:
        parsed(dsn, "sink.dsn")
    assert "hun" not in str(refused.value)
    assert "%40 for @" in str(refused.value.hint)
