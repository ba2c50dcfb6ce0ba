"""Where output goes: answers to stdout, everything else to stderr. No control codes off a terminal.

Hints are printed so that they can be typed as they are: for the same catalog, with the job's config file.
"""

import json
import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from backfill_cli.errors import BackfillError, Command, Hint
from backfill_cli.view.answers import ErrorTold, Failed, document

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RED, DIM, RESET = "\x1b[31m", "\x1b[2m", "\x1b[0m"
CLEARED = "\r\x1b[K"
LINE_S = 10.0
"""Off a terminal a line says so often what goes on."""
ERROR_FILE = "BACKFILL_DETACHED_ERROR"  # tells a background process where to write the error that ends it


def answer(text: str) -> None:
    """Print what was asked for."""
    print(shown_lines(text), flush=True)


def answer_json(answer: "DataclassInstance") -> None:
    """Print what was asked for as one JSON document, ASCII: nothing in it can reach the terminal as a command."""
    print(json.dumps(document(answer)), flush=True)


def answer_schema(schema: dict[str, Any]) -> None:
    """Print a JSON Schema."""
    print(json.dumps(schema, indent=1), flush=True)


def say(text: str) -> None:
    """Print what happens meanwhile, to stderr."""
    print(shown_lines(text), file=sys.stderr, flush=True)


def complain(error: BackfillError) -> None:
    """Print an error to stderr: what is wrong, and what to type next."""
    red, dim, reset = (RED, DIM, RESET) if coloured(sys.stderr) else ("", "", "")
    print(f"{red}error:{reset} {shown_lines(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"{dim}Try:{reset} {told_hint(error.hint, sys.stderr)}", file=sys.stderr)
    sys.stderr.flush()


def told_hint(hint: Hint, stream: TextIO, indent: int = 0) -> str:
    """What follows `Try: `: on a terminal that is too narrow for it, lines of their own, as `laid_out`."""
    width = shutil.get_terminal_size().columns - indent
    words = shown_lines(str(hint))
    if not interactive(stream) or "\n" in words or len(words) <= width - len("Try: "):
        return words
    first, *more = map(shown_lines, laid_out(hint, width))
    if not more and len(first) > width:
        return words
    return "".join(f"\n{' ' * indent}{line}" for line in (first, *more))


def complain_json(error: Exception) -> None:
    """Print an error for a script: one object on stdout, unless the command's answer is already there."""
    if not getattr(error, "answered", False):
        answer_json(Failed(ErrorTold.of(error)))


def leave(error: Exception) -> None:
    """Write the error to the file named by the process that started this one in the background, if any."""
    file = os.environ.get(ERROR_FILE)
    if file is not None:
        with (
            suppress(OSError),
            os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as left,
        ):
            told = ErrorTold.of(error)
            json.dump({"kind": type(error).__name__, "message": told.message, "hint": asdict(told.hint)}, left)


def coloured(stream: TextIO) -> bool:
    """Whether colour may be used: a terminal, and neither NO_COLOR nor a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def interactive(stream: TextIO) -> bool:
    """Whether a view may redraw itself."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def wrapped(text: str, indent: int, stream: TextIO | None = None) -> str:
    """On a terminal, the text wrapped at words, with this indent from the second line on; elsewhere as it is.

    Not for a command, which then could not be copied. stream: stdout by default.
    """
    if not interactive(stream or sys.stdout):
        return text
    width = max(shutil.get_terminal_size().columns, 2 * indent)
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


# Cc: ESC and the like move the cursor. Cf: right-to-left marks change what is read. Cs: has no UTF-8.
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def shown(value: object) -> str:
    """One line of text without control characters, so that a terminal takes nothing in it for a command."""
    text = str(value)
    if text.isascii() and text.isprintable():
        return text
    return "".join(char for char in text.replace("\n", " ") if unicodedata.category(char) not in _UNSHOWN)


def shown_lines(value: object) -> str:
    """As `shown`, line by line."""
    return "\n".join(map(shown, str(value).split("\n")))


def shortened(text: str, width: int) -> str:
    """The text, or what of its beginning has this width, with `…` after its last whole word."""
    return text if len(text) <= width else textwrap.shorten(text, width, placeholder=" …")


_WITHOUT_CATALOG = ("init", "config", "schema")


def laid_out(hint: Hint, width: int) -> list[str]:
    """The hint in lines of this width; if it takes several, each command has one of its own, so it can be copied.

    Only a command that is wider than a line, a setting (`name = value`), or a word, makes a longer line.
    """
    return [str(hint)] if len(str(hint)) <= width else in_lines(hint, width)


def in_lines(hint: Hint, width: int) -> list[str]:
    """The hint in lines of this width, each of its commands on one of its own."""
    lines = []
    for part in hint.said:
        if not isinstance(part, str):
            lines.append(str(part))
            continue
        said = part.strip(" ;,")
        if " = " in said:
            lines.append(said)
        elif any(map(str.isalnum, said)):
            lines += textwrap.wrap(said, max(1, width), break_long_words=False, break_on_hyphens=False)
    return lines


def as_typed(hint: Hint, ctx: Any) -> Hint:
    """The hint for the user of this command: its commands name the same catalog and the same config."""
    file = typed_file(ctx.params)
    hint, told = hint.of_file(file), ctx.get_parameter_source("catalog")
    if told is not None and told.name == "COMMANDLINE":
        return in_catalog(hint, ctx.params["catalog"])
    if told is not None and told.name == "DEFAULT" and os.path.dirname(file) and os.path.isfile(file):
        from backfill_cli.catalog.places import of_config

        return in_catalog(hint, from_here(str(of_config(Path(file)))), also=lambda one: not one.names_file)
    return hint


def typed_file(typed: dict[str, Any]) -> str:
    """The config that a command was given; empty if none."""
    if "config" in typed:  # FILE can also be given without the option
        default = "job.toml" if "file" in typed else ""  # else it is the job's own
        return typed["config"] or typed.get("file") or default
    named = typed.get("from_sink") or (typed.get("sink") if "with_rows" in typed else None)
    return named or ""


def in_catalog(hint: Hint, catalog: str, also: Callable[[Command], bool] = lambda _one: True) -> Hint:
    """The hint, its commands with this `--catalog`, unless they name one: else they miss the job.

    also: and if this holds of a command.
    """

    def there(one: Command) -> Command:
        known = "--catalog" in one.words or one.words[0] in _WITHOUT_CATALOG
        return one if known or not also(one) else Command((*one.words, "--catalog", catalog))

    return hint.with_commands(there)


def from_here(file: str) -> str:
    """The path as typed from this folder: relative if the file is in or below it."""
    try:
        return str(Path(file).relative_to(Path.cwd())) if file else ""
    except (ValueError, OSError):  # elsewhere; or the folder is gone
        return file
