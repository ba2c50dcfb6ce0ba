"""Which of the columns that a change may leave out reach the sink as they are, and what computes with one."""

import pytest

from backfill_cli.config.sections import Transform
from backfill_cli.config.transforms import computing, kept

LACKING = ["big", "a doc"]


def shape(*select: str, where: str | None = None) -> Transform:
    return Transform(select=list(select) or None, where=where)


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ((), {"big": "big", "a doc": "a doc"}),
        (("*",), {"big": "big", "a doc": "a doc"}),
        (("* EXCEPT (big)",), {"a doc": "a doc"}),
        (("id", "BIG"), {"big": "BIG"}),
        (("id", "`a doc` AS text"), {"a doc": "text"}),
        (("id", "big AS `the big`", "`a doc`"), {"big": "the big", "a doc": "a doc"}),
        (("id", "upper(big) AS big"), {}),
        (("id", "s.big AS big"), {}),
        (("id", "v"), {}),
    ],
)
def test_columns_that_the_sink_gets_as_they_are_are_known_by_their_names_there(
    select: tuple[str, ...], names: dict[str, str]
) -> None:
    assert kept(shape(*select), LACKING) == names


@pytest.mark.parametrize(
    ("select", "found"),
    [
        ((), []),
        (("*", "v + 1 AS next"), []),
        (("id", "big", "`a doc` AS text"), []),
        (("id", "upper(big) AS up", "length(`A DOC`) AS n", "v"), ["upper(big) AS up", "length(`A DOC`) AS n"]),
        (("id", "coalesce(v, BIG, '') AS x"), ["coalesce(v, BIG, '') AS x"]),
        (("id", "transform(items, i -> concat(i, big)) AS x"), ["transform(items, i -> concat(i, big)) AS x"]),
        (("id", "'big' AS x"), []),
        (("id", "big.inner AS x", "s.big AS y"), ["big.inner AS x"]),
    ],
)
def test_an_expression_of_a_column_that_may_lack_is_named(select: tuple[str, ...], found: list[str]) -> None:
    assert computing(shape(*select), LACKING) == found


@pytest.mark.parametrize(
    ("select", "where", "needs"),
    [
        ((), "v > 1", True),  # a row that comes back has to be whole
        (("id", "v"), "v > 1", False),
        (("id", "v"), "length(BIG) > 1", True),
        (("id", "v"), "`a doc` IS NULL", True),
        (("id", "v"), "big.inner > 1", True),
        (("id", "v"), "s.big > 1", False),
        (("id", "v", "big AS text"), "v > 1", True),
    ],
)
def test_a_where_needs_what_it_names_and_each_such_column_that_the_sink_gets(
    select: tuple[str, ...], where: str, needs: bool
) -> None:
    assert computing(shape(*select, where=where), LACKING) == ([f"where {where}"] if needs else [])


def test_where_nothing_may_lack_nothing_computes_with_it() -> None:
    assert computing(shape("upper(big) AS up", where="big > 'a'"), []) == []
    assert kept(shape(), []) == {}
