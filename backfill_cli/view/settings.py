"""The options in force, one line each."""

import json
from collections.abc import Sequence
from typing import Any

from backfill_cli.view.console import answer

HEAD = ("OPTION", "FROM", "VALUE")


def settings_table(rows: Sequence[tuple[str, str, Any]]) -> str:
    """(option, origin, value), columns aligned, the longest last; nothing is cut off."""
    told = [HEAD, *((option, origin, _value(value)) for option, origin, value in rows)]
    widths = [max(len(row[column]) for row in told) for column in range(2)]
    return "\n".join(
        f"{option:<{widths[0]}}  {origin:<{widths[1]}}  {value}".rstrip() for option, origin, value in told
    )


def show_settings(rows: Sequence[tuple[str, str, Any]]) -> None:
    answer(settings_table(rows))


def _value(value: Any) -> str:
    """As JSON, which is nearly TOML; empty for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)
