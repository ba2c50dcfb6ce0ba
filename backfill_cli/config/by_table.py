"""Options with values by table (see `ByTable`): some tables' part of them, and others' with those of one more."""

from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from pydantic import BaseModel

from backfill_cli.config.marks import marks_along
from backfill_cli.contracts.options import ByTable
from backfill_cli.model.position import table_of

Tree = dict[str, Any]
Path = tuple[str, ...]


def only(model: type[BaseModel], options: Tree, tables: Collection[str], kept: Collection[str]) -> Tree:
    """The options with the values of these of the tables."""

    def part(values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: one for name, one in values.items() if table_of(name, tables) in kept}

    return _changed(model, options, part)


def given(model: type[BaseModel], options: Tree) -> Tree:
    """By the option's path, `value.schema`: what has values by table."""
    return {".".join(path): one for path, one in _marked(model, options, ()) if isinstance(one, dict)}


def joined(model: type[BaseModel], options: Tree, tables: Collection[str], more: Tree) -> Tree:
    """The options with a further table's values. more: as `given` of the options of that table alone."""

    def merged(values: Any, brought: Tree) -> Tree:
        if isinstance(values, str):
            values = {name: values.replace("{table}", name) for name in tables}
        return {**brought, **(values or {})}

    for path, brought in more.items():
        options = _at(options, path.split("."), partial(merged, brought=brought))
    return options


def _at(options: Tree, path: list[str], change: Callable[[Any], Any]) -> Tree:
    name, *rest = path
    now = options.get(name)
    return {**options, name: _at(now if isinstance(now, dict) else {}, rest, change) if rest else change(now)}


def _changed(model: type[BaseModel], options: Tree, change: Callable[[Any], Any]) -> Tree:
    for path, _ in _marked(model, options, ()):
        options = _at(options, list(path), change)
    return options


def _marked(model: type[BaseModel], options: Tree, above: Path) -> Iterator[tuple[Path, Any]]:
    for name, value in options.items():
        path = (*above, name)
        marks = [marks for _, marks in marks_along(model, path)][-1]
        if any(isinstance(mark, ByTable) for mark in marks):
            yield path, value
        elif isinstance(value, dict):
            yield from _marked(model, value, path)
