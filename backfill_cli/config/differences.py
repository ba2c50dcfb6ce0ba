"""What differs between the fingerprints of two configs, for people."""

import json
from collections.abc import Mapping
from typing import Any

from backfill_cli.config.faults import spell_path


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The differences between two fingerprints, each `path: old → new`."""
    before, after = dict(_leaves(old)), dict(_leaves(new))
    return [
        f"{spell_path(path)}: {_spell(before.get(path))} → {_spell(after.get(path))}"
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
