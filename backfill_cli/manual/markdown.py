"""docs/commands.md: the help of all commands on one page."""

from collections.abc import Iterator, Sequence

from backfill_cli.view.help import COMMON, Page, Row

MADE = "Made of `backfill --help` by `python -m backfill_cli.manual docs/commands.md`."


def commands_page(pages: Sequence[Page]) -> str:
    """The first page is that of `backfill`; common options are said there, once."""
    root, *commands = pages
    common = next(one.options[COMMON] for one in commands if len(one.options.get(COMMON, ())) > 2)
    lines = ["# Commands", "", MADE, ""]
    lines += ["\n\n".join(root.said), ""]
    for title, rows in root.commands.items():
        lines += [f"**{title}**", "", "| | |", "| --- | --- |"]
        lines += [f"| [{row.names[0]}](#{row.names[0]}) | {_cell(row.said)} |" for row in rows]
        lines.append("")
    lines += [*_panel("Options of `backfill` itself", root.options["Options"]), *_panel(COMMON, common)]
    for one in commands:
        lines += [f"## {one.path.partition(' ')[2]}", "", f"`{one.usage}`", "", "\n\n".join(one.said), ""]
        for title, rows in one.options.items():
            if title != COMMON:
                lines += _panel(title, rows)
        lines += ["```sh", *one.examples, "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def _panel(title: str, rows: Sequence[Row]) -> Iterator[str]:
    yield from (f"| {title} | |", "| --- | --- |")
    yield from (f"| `{_cell(row.spelled)}` | {_cell(row.said)} |" for row in rows)
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
