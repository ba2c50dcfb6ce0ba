"""Config faults as people read them: `path.in.file: what is wrong`, never with the value."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Path = Sequence[str | int]

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
    near = get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"unknown; did you mean {near[0]}?"
    return f"unknown; known here: {', '.join(known)}" if known else "unknown"


def _keys(model: type[BaseModel], parents: Sequence[str]) -> list[str]:
    """The keys that a model knows at the path `parents` below it."""
    found: list[type[BaseModel]] = [model]
    for parent in parents:
        below = [field for one in found for key, field in _fields(one).items() if key == parent]
        found = [inner for annotation in below for inner in _models(annotation)]
    return sorted({key for one in found for key in _fields(one)})


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    """The models anywhere in a type: in unions, lists, Annotated."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]
