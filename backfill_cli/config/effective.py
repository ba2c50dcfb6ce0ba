"""The configuration in force, option by option, and where each value comes from; what differs between two.

No secret is ever read.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo

from backfill_cli.config import JobConfig
from backfill_cli.config.faults import Path, spell_path
from backfill_cli.config.sections import JobFile
from backfill_cli.model.reports import Origin, Setting
from backfill_cli.model.secret_forms import REFERENCE
from backfill_cli.model.units import duration_option, duration_s

_ABSENT = object()


def effective(config: JobConfig, told: Mapping[str, Any]) -> list[Setting]:
    """Every option of a config. told: the file's tree, as it was read."""
    parts: dict[str, Any] = {name: getattr(config, name) for name in JobFile.model_fields}
    found = []
    for name, part in parts.items():
        given = told.get(name, _ABSENT)
        kind = config.tree[name].get("type") if name in ("upstream", "sink") else None
        if kind is not None and "type" not in type(part).model_fields:
            found.append(Setting(f"{name}.type", kind, Origin.FILE))
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
    return spelled if lasts and duration_s(spelled := duration_option(value)) == value else value


def _below(told: Any, *keys: str) -> Any:
    return next((told[key] for key in keys if isinstance(told, dict) and key in told), _ABSENT)


def _setting(value: Any, told: Any, at: Path, field: FieldInfo | None) -> Setting:
    path = spell_path(at)
    if told is _ABSENT:
        asked = field is not None and field.is_required()
        return Setting(path, value, Origin.UPSTREAM if asked else Origin.DEFAULT)
    for kind, name in REFERENCE.findall(str(told)):
        if kind == "env":
            unset = "" if name in os.environ else ", which is not set"
            return Setting(path, value, Origin.ENVIRONMENT, f"{name}{unset}")
        if kind == "file":
            there = os.access(name, os.R_OK)
            return Setting(path, value, Origin.SECRET_FILE, f"{name}{'' if there else ', which cannot be read'}")
    return Setting(path, value, Origin.FILE)


@dataclass(frozen=True, slots=True)
class Difference:
    """An option's two values; None where it is not set."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.path}: {_spell(self.before)} → {_spell(self.after)}"


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """The differences between two fingerprints."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    return [
        Difference(spell_path(path), before.get(path), after.get(path))
        for path in dict.fromkeys([*before, *after])
        if before.get(path) != after.get(path)
    ]


def moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, str] | None:
    """The folder that was moved, and its new path, if that alone explains every difference of two fingerprints."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    pairs = {
        _without_common_end(str(before.get(path)), str(after.get(path)))
        for path in before.keys() | after.keys()
        if before.get(path) != after.get(path)
    }
    return pairs.pop() if len(pairs) == 1 and all("/" in one for one in next(iter(pairs))) else None


def _without_common_end(one: str, other: str) -> tuple[str, str]:
    left, right = one.split("/"), other.split("/")
    while left and right and left[-1] == right[-1]:
        left.pop()
        right.pop()
    return "/".join(left), "/".join(right)


def _leaves(tree: Mapping[str, Any], at: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for key, value in tree.items():
        leaves += _leaves(value, (*at, key)) if isinstance(value, Mapping) else [((*at, key), value)]
    return leaves


def _spell(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
