"""The options in force: a line each, and as JSON."""

import json
from collections.abc import Sequence
from typing import Any

from backfill_cli.view.console import answer

HEAD = ("OPTION", "FROM", "VALUE")


def settings_table(rows: Sequence[tuple[str, str, Any]]) -> str:
    """(option, where from, value), columns aligned, the open-ended one last; nothing is cut off."""
    told = [HEAD, *((option, origin, _value(value)) for option, origin, value in rows)]
    widths = [max(len(row[column]) for row in told) for column in range(2)]
    return "\n".join(
        f"{option:<{widths[0]}}  {origin:<{widths[1]}}  {value}".rstrip() for option, origin, value in told
    )


def show_settings(rows: Sequence[tuple[str, str, Any]]) -> None:
    answer(settings_table(rows))


def _value(value: Any) -> str:
    """As JSON writes it, which is nearly as TOML does; nothing for none."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)
