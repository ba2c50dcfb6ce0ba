"""Secrets by reference: `${env:NAME}` and `${file:PATH}`. They stay references until something connects.

Secrets in plain text are refused, because the config is stored in the catalog and in the sink as it is.
"""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from backfill_cli.config.faults import spell_faults, spell_path
from backfill_cli.config.marks import marks_along
from backfill_cli.config.paths import is_path, valued_path
from backfill_cli.contracts.options import STORED, NoSecret, Secret, SecretKeys
from backfill_cli.errors import ConfigError
from backfill_cli.model.secret_forms import REFERENCE, holds_key, holds_secret, is_switch, names_secret

Model = TypeVar("Model", bound=BaseModel)

Steps = tuple[str | int, ...]
Leaf = Callable[[Steps, str], str]


def each_string(value: Any, leaf: Leaf, at: Steps = ()) -> Any:
    """A copy of a TOML or JSON tree with `leaf(path, text)` for each string in it."""
    if isinstance(value, str):
        return leaf(at, value)
    if isinstance(value, dict):
        return {key: each_string(item, leaf, (*at, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_string(item, leaf, (*at, index)) for index, item in enumerate(value)]
    return value


def leaves(value: Any, at: Steps = ()) -> Iterator[tuple[Steps, Any]]:
    """Texts and numbers with their paths. A number can be a secret as well; true and false cannot."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*at, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from leaves(item, (*at, index))
    elif not isinstance(value, bool):
        yield at, value


def reference_faults(part: Any, at: Steps) -> list[str]:
    """The faults of references of an unknown kind in a part of the config."""
    return [
        f"{spell_path(path)}: a reference must be ${{env:NAME}} or ${{file:PATH}}"
        for path, text in leaves(part, at)
        for kind, name in REFERENCE.findall(str(text))
        if kind not in ("env", "file") or not name
    ]


def resolve(options: Model, at: str, context: Any = None) -> Model:
    """The same options with the values of their references: for connecting, never for storing or showing.

    at: the options' place in the config, for errors ("upstream"). context: STORED for a stored config. Raises
    ConfigError naming path and reference, never a value.
    """
    values: list[tuple[str, str]] = []
    faults: list[str] = []

    def fill(path: Steps, text: str) -> str:
        filled = REFERENCE.sub(lambda found: look_up(path, found), text)
        if filled == text or not is_path(type(options), path, filled):
            return filled
        if (found := valued_path(filled)) is None:
            fault = f"{text} is a relative path: give the absolute one; or, below the config's folder: ./{text}"
        elif context != STORED and holds_secret(found):
            fault = f"{text} {IN_PATH}: {OF_PATH}"
        else:
            return found
        faults.append(f"{spell_path((at, *path))}: {fault}")
        return ""

    def look_up(path: Steps, found: re.Match[str]) -> str:
        try:
            value = reference_value(found[1], found[2] or "")
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


def reference_value(kind: str, name: str) -> str:
    """The value of `${kind:name}`. Raises LookupError, saying why there is none."""
    if kind == "env":
        if name not in os.environ:
            raise LookupError("not set in the environment")
        return os.environ[name]
    try:
        return Path(name).read_text("utf-8").rstrip("\r\n")
    except OSError as error:
        gone = isinstance(error, FileNotFoundError)
        raise LookupError("does not exist" if gone else (error.strerror or "cannot be read").lower()) from None
    except UnicodeDecodeError:
        raise LookupError("not UTF-8 text") from None


_REFERENCES = re.compile(rf"({REFERENCE.pattern})+")

IN_PATH = "holds a secret, which would be shown and stored with the path"
OF_PATH = 'leave it out; the file system has it from spark.conf, by "${env:NAME}", and this process\'s environment'
HOW = "write a secret as a reference, ${env:NAME} or ${file:PATH}"


def secret_faults(part: str, told: Any, model: type[BaseModel] | None) -> list[str]:
    """A fault for each secret in plain text in `[part]`, by its path; the value is never shown."""
    return [f"{at}: {HOW}: this option is stored in the catalog" for at in secret_places(part, told, model)]


def secret_places(part: str, told: Any, model: type[BaseModel] | None) -> list[str]:
    """The paths in `[part]` of secrets in plain text.

    model: that of the options there, which declares what holds a secret; None if not known.
    """
    return [
        spell_path((part, *path))
        for path, value in leaves(told)
        if _holds_secret(str(value), _declared(model, path), _name(path))
    ]


def _name(path: Steps) -> str:
    return next((step for step in reversed(path) if isinstance(step, str)), "")


def _holds_secret(text: str, declared: bool | None, name: str) -> bool:
    """declared: whether the option holds a secret; None if only its name can tell."""
    if holds_key(text):
        return True
    if declared is False:
        return False
    if declared:
        return text != "" and not _REFERENCES.fullmatch(text)
    if names_secret(name):
        return not (is_switch(text) or _REFERENCES.fullmatch(text))
    return holds_secret(text)


def _declared(model: type[BaseModel] | None, path: Steps) -> bool | None:
    """Whether the marks along a path declare a secret."""
    free: frozenset[str] = frozenset()
    for step, marks in marks_along(model, path):
        if step in free:
            return True
        if any(isinstance(mark, NoSecret) for mark in marks):
            return False
        if any(isinstance(mark, Secret) for mark in marks):
            return True
        free = frozenset(name for mark in marks if isinstance(mark, SecretKeys) for name in mark.names)
    return None
