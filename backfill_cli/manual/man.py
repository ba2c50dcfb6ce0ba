"""A man page in roff's `man` macros, of section 1."""

from collections.abc import Iterator, Sequence

from backfill_cli import __version__
from backfill_cli.view.help import Page, Row


def man_page(of: Page, pages: Sequence[Page]) -> str:
    """pages: all, for what to see also; the first is that of `backfill`, which has each command's line."""
    name = of.path.replace(" ", "-")
    lines = [
        f'.TH {_roff(name.upper())} 1 "" "backfill {__version__}" "backfill"',
        ".nh",  # no hyphenation: an option could be cut in two
        ".ad l",
        ".SH NAME",
        f"{_roff(name)} \\- {_roff(_line(of, pages[0]))}",
        ".SH SYNOPSIS",
        f"\\fB{_roff(of.path)}\\fR{_roff(of.usage.removeprefix(of.path))}",
        ".SH DESCRIPTION",
        "\n.PP\n".join(map(_roff, of.said)),
    ]
    if of.commands:
        lines.append(".SH COMMANDS")
        for title, rows in of.commands.items():
            lines += [f".SS {_roff(title)}", *_rows(rows)]
    for title, rows in of.options.items():
        lines += [f".SH {_roff(title.upper())}", *_rows(rows)]
    lines += [".SH EXAMPLES", ".nf", *map(_roff, of.examples), ".fi", ".SH SEE ALSO", _also(of, pages)]
    return "\n".join(lines) + "\n"


def _line(of: Page, root: Page) -> str:
    lines = {row.names[0]: row.said for rows in root.commands.values() for row in rows}
    return lines.get(of.path.partition(" ")[2]) or of.said[0].rstrip(".")


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        names = ", ".join(f"\\fB{_roff(name)}\\fR" for name in row.names)
        yield from (".TP", f"{names} \\fI{_roff(row.value)}\\fR" if row.value else names, _roff(row.said))


def _also(of: Page, pages: Sequence[Page]) -> str:
    """The page above it, and those below it."""
    near = [one.path for one in pages if _above(one.path) == of.path or one.path == _above(of.path)]
    return ",\n".join(f"\\fB{_roff(path.replace(' ', '-'))}\\fR(1)" for path in near)


def _above(path: str) -> str:
    return path.rpartition(" ")[0]


def _roff(text: str) -> str:
    """The text as it is: a `-` that can be copied, no line that is a request."""
    told = text.replace("\\", "\\e").replace("-", "\\-")
    told = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in told)
    return f"\\&{told}" if told.startswith((".", "'")) else told
