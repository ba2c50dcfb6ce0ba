"""Config faults as people read them: `path.in.file: what is wrong`, never with the value.

Those of one model, and those between tables, which no single table shows.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from backfill_cli.config.derived import DerivedSection
from backfill_cli.config.sections import Table, Transform
from backfill_cli.model.units import spell_known

Path = Sequence[str | int]
Tree = dict[str, Any]
Part = TypeVar("Part", bound=BaseModel)

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def spell_path(path: Path) -> str:
    """`tables[0].key`, `spark.conf."a.b"`: as TOML writes it."""
    spelled = ""
    for step in path:
        if isinstance(step, int):
            spelled += f"[{step}]"
        else:
            name = step if _BARE_KEY.fullmatch(step) else f'"{step}"'
            spelled += f".{name}" if spelled else name
    return spelled or "config"


def spell_faults(error: ValidationError, model: type[BaseModel], data: Any, at: Path = ()) -> list[str]:
    """All faults of one validation of `data`, in the order of the file's models.

    model: the model that was validated, which gives the known keys. at: the path of `data` in the file.
    """
    return [
        f"{spell_path([*at, *_steps(fault, data)])}: {_what(fault, model, data)}"
        for fault in error.errors(include_url=False, include_input=False)
    ]


def _steps(fault: ErrorDetails, data: Any) -> list[str | int]:
    """The fault's path without pydantic's names for the branches of a union, which are not in the file."""
    steps: list[str | int] = []
    for index, step in enumerate(fault["loc"]):
        last = index == len(fault["loc"]) - 1
        if isinstance(data, dict) and (step in data or (last and fault["type"] == "missing")):
            steps.append(step)
            data = data.get(step)
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            steps.append(step)
            data = data[step]
    return steps


def _what(fault: ErrorDetails, model: type[BaseModel], data: Any) -> str:
    if fault["type"] == "missing":
        return "missing"
    if fault["type"] in ("too_short", "string_too_short"):
        return "must not be empty"
    if fault["type"] in ("model_type", "dict_type"):
        return "must be a table"
    if fault["type"] == "extra_forbidden":
        *parents, name = _steps(fault, data)
        return _unknown(str(name), _keys(model, [step for step in parents if isinstance(step, str)]))
    message = fault["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    message = message.replace("Input should be", "must be").replace("should be", "must be")
    return message[:1].lower() + message[1:]


def _unknown(name: str, known: list[str]) -> str:
    return f"unknown{spell_known(name, known, 'known here')}"


def _keys(model: type[BaseModel], parents: Sequence[str]) -> list[str]:
    """The keys that a model knows at the path `parents` below it."""
    found: list[type[BaseModel]] = [model]
    for parent in parents:
        below = [field for one in found for key, field in _fields(one).items() if key == parent]
        found = [inner for annotation in below for inner in models_in(annotation)]
    return sorted({key for one in found for key in _fields(one)})


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models anywhere in a type: in unions, lists, Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in models_in(inner)]


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
    faults += _derived_faults(tree, tables)
    sharing = [table for table in tables.values() if table.transform is None]
    for transform in _well_formed(Transform, [tree.get("transform", {})]).values():
        faults += _transform_faults(transform, sharing, ("transform",))
    return faults


def _derived_faults(tree: Tree, tables: Mapping[int, Table]) -> list[str]:
    """Faults if a derived table has the name, or the target, of a table or of another derived table."""
    named = {table.name.lower(): f"tables[{index}]" for index, table in tables.items()}
    placed = {table.sink_name.lower(): f"tables[{index}]" for index, table in tables.items()}
    lived = {table.live.lower(): f"tables[{index}]" for index, table in tables.items() if table.live is not None}
    told, faults = tree.get("derived"), []
    for index, derived in _well_formed(DerivedSection, told if isinstance(told, list) else []).items():
        own = f"derived[{index}]"
        if (other := named.setdefault(derived.name.lower(), own)) != own:
            faults.append(f"{own}.name: {derived.name} is also the name of {other}")
            continue
        at = f"{own}.{'name' if derived.target is None else 'target'}: {derived.sink_name}"
        if (other := placed.setdefault(derived.sink_name.lower(), own)) != own:
            faults.append(f"{at} is also the target of {other}")
        elif derived.sink_name.lower() in lived:
            faults.append(f"{at} is also the live name of {lived[derived.sink_name.lower()]}")
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
