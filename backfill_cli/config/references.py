"""Secrets by reference: `${env:NAME}` and `${file:PATH}`. They stay references until something connects."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from backfill_cli.config.faults import spell_faults, spell_path
from backfill_cli.errors import ConfigError

Model = TypeVar("Model", bound=BaseModel)

REFERENCE = re.compile(r"\$\{([^:}]*)(?::([^}]*))?\}")

Leaf = Callable[[tuple[str | int, ...], str], str]


def each_string(value: Any, leaf: Leaf, at: tuple[str | int, ...] = ()) -> Any:
    """A copy of a TOML or JSON tree with `leaf(path, text)` for each string in it."""
    if isinstance(value, str):
        return leaf(at, value)
    if isinstance(value, dict):
        return {key: each_string(item, leaf, (*at, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_string(item, leaf, (*at, index)) for index, item in enumerate(value)]
    return value


def reference_faults(part: Any, at: tuple[str | int, ...]) -> list[str]:
    """The faults of references of an unknown kind in a part of the config."""
    faults: list[str] = []

    def look(path: tuple[str | int, ...], text: str) -> str:
        for kind, name in REFERENCE.findall(text):
            if kind not in ("env", "file") or not name:
                faults.append(f"{spell_path(path)}: a reference must be ${{env:NAME}} or ${{file:PATH}}")
        return text

    each_string(part, look, at)
    return faults


def resolve(options: Model, at: str, context: Any = None) -> Model:
    """The same options with the values of their references: for connecting, never for storing or showing.

    at: the options' place in the config, for errors ("upstream"). context: STORED for a stored config. Raises
    ConfigError naming path and reference, never a value.
    """
    values: list[tuple[str, str]] = []
    faults: list[str] = []

    def fill(path: tuple[str | int, ...], text: str) -> str:
        return REFERENCE.sub(lambda found: look_up(path, found), text)

    def look_up(path: tuple[str | int, ...], found: re.Match[str]) -> str:
        try:
            value = _value(found[1], found[2] or "")
        except LookupError as error:
            faults.append(f"{spell_path((at, *path))}: {found[0]}: {error.args[0]}")
            return ""
        values.append((value, found[0]))
        return value

    kept = options.model_dump(mode="json", by_alias=True, exclude_unset=True)
    filled = each_string(kept, fill)
    if faults:
        raise ConfigError("config", faults)
    if not values:
        return options
    try:
        return type(options).model_validate(filled, context=context)
    except ValidationError as error:
        told = [_scrub(fault, values) for fault in spell_faults(error, type(options), filled, (at,))]
    raise ConfigError("config", told)


def _scrub(text: str, values: list[tuple[str, str]]) -> str:
    for value, reference in values:
        if value:
            text = text.replace(value, reference)
    return text


def _value(kind: str, name: str) -> str:
    if kind == "env":
        if name not in os.environ:
            raise LookupError("not set in the environment")
        return os.environ[name]
    try:
        return Path(name).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        raise LookupError((error.strerror or "cannot be read").lower()) from None
    except UnicodeDecodeError:
        raise LookupError("not UTF-8 text") from None
