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


def _leaves(tree: Mapping[str, Any], at: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for key, value in tree.items():
        leaves += _leaves(value, (*at, key)) if isinstance(value, Mapping) else [((*at, key), value)]
    return leaves


def _spell(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
