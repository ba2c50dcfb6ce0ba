"""Where a rule of tests/rules.toml is in the code, and the code without it.

A rule is named by its function and by a statement or an expression of it, whatever their layout: a file that
moves, or is laid out again, keeps its rules.
"""

import ast
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NotRequired, TypedDict

PRODUCT = ("backfill_cli", "commands")
Node = ast.stmt | ast.expr
_NAMED = ast.FunctionDef | ast.ClassDef


class Rule(TypedDict):
    """at: end of the dotted name of a function, a class or a module: `snapshot.SnapshotStrategy.plan`. old: an
    expression, or statements that follow each other, once in it. new: what stands there without the rule.
    text, by: the same as text of the source, for what is inside of SQL, or too long as a statement.
    """

    name: str
    at: str
    old: NotRequired[str]
    new: NotRequired[str]
    text: NotRequired[str]
    by: NotRequired[str]
    tests: list[str]


class Misplaced(Exception):
    """A rule that is not where it says; args[0]: how."""


def without(rule: Rule, tree: Path) -> tuple[Path, str]:
    """The rule's file in this tree, and its text without the rule. Raises Misplaced unless it is there once."""
    find = _texts if "text" in rule else _nodes
    found = [made for path, scope in _scopes(tree, rule["at"]) for made in find(rule, path, scope)]
    if len(found) != 1:
        raise Misplaced(f"{rule['name']}: {rule['at']} has it {len(found)} times, not once")
    return found[0]


def _texts(rule: Rule, path: Path, scope: ast.AST) -> Iterator[tuple[Path, str]]:
    lines = path.read_text("utf-8").splitlines(keepends=True)
    first, last = (scope.lineno - 1, scope.end_lineno) if isinstance(scope, _NAMED) else (0, len(lines))
    own = "".join(lines[first:last])
    for _ in range(own.count(rule["text"])):
        changed = own.replace(rule["text"], rule["by"])
        yield path, "".join([*lines[:first], changed, *lines[last:]])


def _nodes(rule: Rule, path: Path, scope: ast.AST) -> Iterator[tuple[Path, str]]:
    for nodes in _occurrences(scope, ast.parse(rule["old"]).body):
        yield path, replaced(path.read_text("utf-8"), nodes, rule["new"])


def replaced(text: str, nodes: Sequence[Node], new: str) -> str:
    """The text with other statements, or another expression, in place of these."""
    lines = text.encode().split(b"\n")
    first, last = nodes[0], nodes[-1]
    start = sum(len(line) + 1 for line in lines[: first.lineno - 1]) + first.col_offset
    end = sum(len(line) + 1 for line in lines[: (last.end_lineno or 0) - 1]) + (last.end_col_offset or 0)
    if isinstance(first, ast.expr):
        put = f"({new})"
    else:
        put = textwrap.indent(new or "pass", " " * first.col_offset).lstrip()
    return (text.encode()[:start] + put.encode() + text.encode()[end:]).decode()


def _scopes(tree: Path, at: str) -> Iterator[tuple[Path, ast.AST]]:
    """Each module, class and function whose dotted name ends so."""
    parts = at.split(".")
    for path, module in _modules(tree):
        if not set(module).isdisjoint(parts):
            for name, scope in _named(path, path.stat().st_mtime_ns, ".".join(module)):
                if f".{name}".endswith(f".{at}"):
                    yield path, scope


@cache
def _modules(tree: Path) -> tuple[tuple[Path, tuple[str, ...]], ...]:
    found = [path for folder in PRODUCT for path in sorted((tree / folder).rglob("*.py"))]
    names = [path.relative_to(tree).with_suffix("").parts for path in found]
    return tuple(
        (path, tuple(part for part in name if part != "__init__")) for path, name in zip(found, names, strict=True)
    )


@cache
def _named(path: Path, changed: int, module: str) -> tuple[tuple[str, ast.AST], ...]:
    return tuple(scopes(_tree(path, changed), module))


@cache
def _tree(path: Path, _changed: int) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def scopes(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """The node and the classes and functions in it, by dotted name."""
    yield name, node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _NAMED):
            yield from scopes(child, f"{name}.{child.name}")
        elif not isinstance(child, ast.expr):
            yield from (one for one in scopes(child, name) if one[0] != name)


def _occurrences(scope: ast.AST, old: Sequence[ast.stmt]) -> Iterator[Sequence[Node]]:
    """Places in the scope, but not in a function of its own, that read so."""
    wanted = [ast.dump(one) for one in old]
    alone = ast.dump(old[0].value) if len(old) == 1 and isinstance(old[0], ast.Expr) else None
    for node in _own(scope):
        if alone is not None and isinstance(node, ast.expr) and ast.dump(node) == alone:
            yield [node]
        for body in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None)):
            if alone is None and isinstance(body, list):
                for start in range(len(body) - len(old) + 1):
                    run = body[start : start + len(old)]
                    if [ast.dump(one) for one in run] == wanted:
                        yield run


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    yield scope
    for child in (
        () if isinstance(scope, ast.JoinedStr) else ast.iter_child_nodes(scope)
    ):  # 3.11 knows no places there
        if not isinstance(child, _NAMED) or isinstance(scope, ast.Module | ast.ClassDef):
            yield from _own(child)
