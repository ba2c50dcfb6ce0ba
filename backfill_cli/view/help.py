"""What `--help` says of a command, as a value, and how a terminal shows it.

Man pages and completions (`backfill_cli/manual`) and docs/commands.md are made of the same value. It is taken from
the command itself: text from its docstring, examples from its epilog, panels from `rich_help_panel`.
"""

import inspect
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Any, get_args

from backfill_cli.view.console import coloured

COMMON = "Common options"
"""The panel of options that most verbs have: the last one."""

WIDEST = 110
"""Columns: longer lines are hard to read."""

_HEADING, _NAME, _RESET = "\x1b[1m", "\x1b[36m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Row:
    """One option, argument or command.

    names: as typed, `--until`; of an argument or a command its name. value: what follows it, `FILE`; empty for a
    flag. choices: all values that it takes, if these are fixed.
    """

    names: tuple[str, ...]
    said: str
    value: str = ""
    choices: tuple[str, ...] = ()

    @property
    def spelled(self) -> str:
        """As in `-f, --follow`, `--until caught-up|forever`."""
        names = ", ".join(self.names)
        return f"{names} {self.value}" if self.value else names


@dataclass(frozen=True, slots=True)
class Page:
    """The help of one command.

    said: paragraphs, each one line. examples: command lines. commands: those of a group, and `options` with the
    arguments, by the title of their panel.
    """

    path: str
    usage: str
    said: tuple[str, ...]
    examples: tuple[str, ...]
    commands: Mapping[str, tuple[Row, ...]]
    options: Mapping[str, tuple[Row, ...]]


def page(ctx: Any) -> Page:
    """The help of the command that this context is of; a group's commands are in panels of their own."""
    command = ctx.command
    params = [one for one in command.get_params(ctx) if not one.hidden]
    groups = getattr(command, "groups", {})
    panels: dict[str, list[Row]] = {"Arguments": [], "Options": []}
    for one in params:
        panels.setdefault(_panel(one, COMMON if not groups else "Options"), []).append(_row(one))
    if COMMON in panels:
        panels[COMMON] = panels.pop(COMMON)
    return Page(
        ctx.command_path,
        _usage(ctx.command_path, params, bool(groups)),
        tuple(_paragraphs(command.help or "")),
        tuple((command.epilog or "").splitlines()),
        {title: tuple(Row((name,), said) for name, said in of.items()) for title, of in groups.items()},
        {title: tuple(rows) for title, rows in panels.items() if rows},
    )


def shown_page(ctx: Any) -> str:
    """The help for stdout; in the terminal's width also if it goes to a pager."""
    return text(page(ctx), _columns(), coloured(sys.stdout))


def text(of: Page, width: int, colour: bool) -> str:
    """The help in lines of this width, of which only an example can be longer."""
    heading, name, reset = (_HEADING, _NAME, _RESET) if colour else ("", "", "")
    width = max(40, min(width, WIDEST))
    lines = textwrap.wrap(f"Usage: {of.usage}", width, subsequent_indent=" " * 8, break_on_hyphens=False)
    lines[0] = lines[0].replace("Usage:", f"{heading}Usage:{reset}")
    for paragraph in of.said:
        lines += ["", *_wrapped(paragraph, width)]
    for panels in (of.commands, of.options):
        longest = max((len(row.spelled) for rows in panels.values() for row in rows), default=0)
        column = min(longest, width * 3 // 10) + 4
        for title, rows in panels.items():
            lines += ["", f"{heading}{title}:{reset}"]
            for row in rows:
                said = _wrapped(row.said, width - column)
                beside = said.pop(0) if len(row.spelled) + 4 <= column else ""
                space = " " * (column - 2 - len(row.spelled)) if beside else ""
                lines.append(f"  {name}{row.spelled}{reset}{space}{beside}")
                lines += [" " * column + line for line in said]
    if of.examples:
        lines += ["", f"{heading}Examples:{reset}", *(f"  {one}" for one in of.examples)]
    return "\n".join(lines)


def _columns() -> int:
    beside = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 80
    return get_terminal_size((beside, 24)).columns


def _wrapped(said: str, width: int) -> list[str]:
    return textwrap.wrap(said, width, break_long_words=False, break_on_hyphens=False)


def _paragraphs(said: str) -> Iterable[str]:
    return (" ".join(one.split()) for one in inspect.cleandoc(said).split("\n\n") if one.strip())


def _panel(param: Any, of_help: str) -> str:
    if param.name == "help":
        return of_help
    return str(param.rich_help_panel or ("Arguments" if param.param_type_name == "argument" else "Options"))


def _row(param: Any) -> Row:
    names = tuple(sorted(param.opts, key=len))  # typer has those of --help in any order
    if param.name == "help":
        return Row(names, "Show this page.")
    is_flag, choices = getattr(param, "is_flag", False), get_args(param.type_descriptor.annotation)
    choices = tuple(one for one in choices if isinstance(one, str))
    said = [param.help or ""]
    if param.show_default and param.default and not is_flag:
        said.append(f"Default: {param.default}.")
    if param.envvar:
        said.append(f"Or set {param.envvar}.")
    if param.param_type_name == "argument":
        return Row((param.metavar,), " ".join(said))
    value = "" if is_flag else param.metavar or "|".join(choices)
    return Row(names, " ".join(said), value, choices)


def _usage(path: str, params: list[Any], is_group: bool) -> str:
    given = [one for one in params if one.param_type_name == "argument"]
    words = [one.metavar if one.required else f"[{one.metavar}]" for one in given]
    words += [_row(one).spelled for one in params if one.required and one not in given]
    return " ".join([path, *words, "COMMAND [OPTIONS]" if is_group else "[OPTIONS]"])
