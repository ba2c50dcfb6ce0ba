"""What the parser takes, or does not, and no rule knows: refused, with what to type."""

import pytest
from hint_typed import typed
from test_derived_reading import COUNTED, read

from backfill_cli.errors import UsageError


@pytest.mark.parametrize(
    ("sql", "said", "way_on"),
    [
        ("SELECT status FROM orders WHERE", "its SQL cannot be read", "correct derived.sql"),
        ("SELECT o.status FROM orders o WITH ORDINALITY", "near o WITH ORDINALITY", "correct derived.sql"),
        (
            "SELECT o.status FROM orders o JOIN customers c JOIN customers d ON d.id = c.id ON c.id = o.id",
            "brackets around joins",
            "write the joins one after the other",
        ),
        ("SELECT AS STRUCT status FROM orders", "SELECT AS", "leave it out"),
        ("SELECT count(*) AS n FROM orders GROUP BY", "GROUP BY without a column", "leave GROUP BY out"),
    ],
)
def test_what_no_rule_knows_is_refused_with_the_piece(sql: str, said: str, way_on: str) -> None:
    with pytest.raises(UsageError, match=f"derived table 'd': .*{said}") as refused:
        read(sql)
    with typed(refused.value) as hint:
        hint.says(way_on)
        assert read(COUNTED).pushed == ("status",)
