"""Names of ours: one prefix, one module, and no column of a user's beside them that has it, in any case."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import own
from backfill_cli.errors import UsageError

PACKAGE = Path(own.__file__).parents[1]
NAMING = ("alias", "withColumn", "withColumns", "drop", "append_column", "withColumnRenamed", "groupBy")
ELSEWHERE = (
    *("sinks/delta/__init__.py", "sinks/kafka/__init__.py", "sinks/postgres/__init__.py"),
    *("manual/shells.py", "duckdb_instance.py"),
)
"""Help of options, functions of a shell, the name of an attached file: none stands beside a user's columns."""


@cache
def trees() -> list[tuple[str, ast.Module]]:
    return [(str(path.relative_to(PACKAGE)), ast.parse(path.read_text())) for path in PACKAGE.rglob("*.py")]


def test_a_name_with_the_prefix_is_defined_in_one_module() -> None:
    found = [
        (path, node.lineno)
        for path, tree in trees()
        if path != "contracts/own.py" and path not in ELSEWHERE
        for node in _texts(tree)
        if own.PREFIX in str(node.value)
    ]
    assert not found


def test_a_mark_beside_a_users_columns_is_named_by_that_module() -> None:
    """A literal that begins with `_` is another system's column, and only read."""
    found = [
        (path, node.lineno, one.value)
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in NAMING
        for one in node.args
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and re.match(r"_[a-z]", one.value)
    ]
    assert not found


def _texts(tree: ast.Module) -> list[ast.Constant]:
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        n for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in told
    ]


@pytest.mark.parametrize(
    "name", [own.OP, "_BACKFILL_OP", "_Backfill_anything", "_backf\u0131ll_op", "_BACKF\u0130LL_OP"]
)
def test_a_reserved_name_is_refused_in_any_case(name: str) -> None:
    with pytest.raises(UsageError, match="backfill's own") as caught:
        own.refuse_names("table 't'", ["id", name])
    assert repr(name) in caught.value.message
    assert "upstream" in str(caught.value.hint)


@pytest.mark.parametrize(
    "name", ["_backfill", "_backfilled", "backfill_op", "x_backfill_op", "_op", "_seq", "_ms", "n"]
)
def test_any_other_name_is_the_users(name: str) -> None:
    own.refuse_names("table 't'", ["id", name])


@given(st.text(min_size=1))
def test_a_name_and_its_other_case_are_one_name_where_a_letter_stays_a_letter(name: str) -> None:
    for other in (name.upper(), name.lower()):
        if len(other) == len(name) and other not in (name, ""):
            same = all(a.upper() == b.upper() or a.lower() == b.lower() for a, b in zip(name, other, strict=True))
            if same:
                with pytest.raises(UsageError, match="in case only"):
                    own.refuse_twins("table 't'", [name, other])


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two columns are called 'a'"):
        own.refuse_names("table 't'", ["a", "b", "a"])
