"""The configuration in force, option by option, and where each value comes from. No secret is ever read."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from backfill_cli.config import JobConfig
from backfill_cli.config.faults import Path, spell_path
from backfill_cli.config.references import REFERENCE
from backfill_cli.config.sections import JobFile
from backfill_cli.model.units import duration_s, spell_duration

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Setting:
    """One option.

    path: its place in the file. value: JSON; for a secret, the reference to it. origin: `file`, `environment` (the
    file names a variable), `secret file`, `upstream` (which knows it: a primary key, or partition and offset),
    `default`. note: for a reference, what it names and whether that exists.
    """

    path: str
    value: Any
    origin: str
    note: str = ""


def effective(config: JobConfig, told: Mapping[str, Any]) -> list[Setting]:
    """Every option of a config. told: the file's tree, as it was read."""
    parts: dict[str, Any] = {name: getattr(config, name) for name in JobFile.model_fields}
    found = []
    for name, part in parts.items():
        given = told.get(name, _ABSENT)
        kind = config.tree[name].get("type") if name in ("upstream", "sink") else None
        if kind is not None and "type" not in type(part).model_fields:
            found.append(Setting(f"{name}.type", kind, "file"))
        found += _settings(part, given, (name,))
    return found


def _settings(value: Any, told: Any, at: Path) -> Iterator[Setting]:
    """The options below `at`. told: what the file says there."""
    if isinstance(value, BaseModel):
        shown = value.model_dump(mode="json", by_alias=True)
        for name, field in type(value).model_fields.items():
            inner, key = getattr(value, name), field.alias or name
            below = _below(told, key, name)
            if isinstance(inner, BaseModel) or (isinstance(inner, dict) and inner):
                yield from _settings(inner, below, (*at, key))
            else:
                yield _setting(_as_written(shown[key], field), below, (*at, key), field)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield _setting(item, _below(told, key, key), (*at, key), None)
    else:
        for index, item in enumerate(value):
            yield from _settings(item, told[index] if isinstance(told, list) else _ABSENT, (*at, index))


def _as_written(value: Any, field: FieldInfo) -> Any:
    """A duration with its unit, if that is exact."""
    lasts = any(isinstance(mark, BeforeValidator) and mark.func is duration_s for mark in field.metadata)
    return spelled if lasts and duration_s(spelled := spell_duration(value)) == value else value


def _below(told: Any, *keys: str) -> Any:
    return next((told[key] for key in keys if isinstance(told, dict) and key in told), _ABSENT)


def _setting(value: Any, told: Any, at: Path, field: FieldInfo | None) -> Setting:
    path = spell_path(at)
    if told is _ABSENT:
        asked = field is not None and field.is_required()
        return Setting(path, value, "upstream" if asked else "default")
    for kind, name in REFERENCE.findall(str(told)):
        if kind == "env":
            return Setting(
                path, value, "environment", f"{name}{'' if name in os.environ else ', which is not set'}"
            )
        if kind == "file":
            there = os.access(name, os.R_OK)
            return Setting(path, value, "secret file", f"{name}{'' if there else ', which cannot be read'}")
    return Setting(path, value, "file")
