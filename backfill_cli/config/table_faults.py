"""Faults between a config's tables, and in their transforms: those that no single table shows."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from backfill_cli.config.sections import Table, Transform

Tree = dict[str, Any]
Part = TypeVar("Part", bound=BaseModel)


def table_faults(tree: Tree) -> list[str]:
    """Faults between tables and in transforms, among those that are well-formed."""
    faults = []
    seen: dict[tuple[str, str], int] = {}
    told = tree.get("tables")
    tables = _well_formed(Table, told if isinstance(told, list) else [])
    for index, table in tables.items():
        for word, name in (("name", table.name), ("target", table.sink_name)):
            first = seen.setdefault((word, name.lower()), index)
            if first != index and not (word == "target" and table.target is None):
                faults.append(f"tables[{index}].{word}: {name} is also the {word} of tables[{first}]")
        if table.live is not None:
            faults += _live_faults(index, table.live, tables)
        if table.transform is not None:
            faults += _transform_faults(table.transform, [table], ("tables", index, "transform"))
    sharing = [table for table in tables.values() if table.transform is None]
    for transform in _well_formed(Transform, [tree.get("transform", {})]).values():
        faults += _transform_faults(transform, sharing, ("transform",))
    return faults


def _live_faults(index: int, live: str, tables: Mapping[int, Table]) -> list[str]:
    """Faults if the name that people query is the target or the live name of another table."""
    at = f"tables[{index}].live: {live}"
    own = [f"tables[{other}]" for other, table in tables.items() if table.sink_name.lower() == live.lower()]
    if own:
        elsewhere = f"another_schema.{live.rpartition('.')[2]}"
        return [
            f"{at} is the target of {own[0]}: rename that target, for example {live}_v2; or, for a job that "
            f"exists, whose targets cannot change, name a table in another schema: {elsewhere}"
        ]
    before = (other for other in tables if other < index)
    twins = [other for other in before if (tables[other].live or "").lower() == live.lower()]
    return [f"{at} is also the live name of tables[{twins[0]}]"] if twins else []


def _transform_faults(transform: Transform, tables: Sequence[Table], at: tuple[str | int, ...]) -> list[str]:
    """As `transforms.transform_faults`; the SQL parser is loaded only if there is SQL."""
    if transform.is_empty:
        return []
    from backfill_cli.config.transforms import transform_faults

    return transform_faults(transform, tables, at)


def _well_formed(model: type[Part], told: list[Any]) -> dict[int, Part]:
    """The items that are a valid `model`, by index; faults of the others are reported elsewhere."""
    parts: dict[int, Part] = {}
    for index, item in enumerate(told):
        with suppress(ValidationError):
            parts[index] = model.model_validate(item)
    return parts
