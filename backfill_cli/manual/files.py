"""The files, by where they are below an installation's folder. The same help always makes the same bytes."""

from collections.abc import Iterator
from typing import Any

import typer
import typer.main

from backfill_cli.main import app
from backfill_cli.manual.man import man_page
from backfill_cli.manual.shells import bash, fish, zsh
from backfill_cli.view.help import Page, page


def pages() -> list[Page]:
    """Of `backfill` and of each command, in the order of `--help`."""
    root = typer.main.get_command(app)
    return list(_below(typer.Context(root, info_name="backfill", **root.context_settings)))


def _below(ctx: Any) -> Iterator[Page]:
    yield page(ctx)
    for name, command in getattr(ctx.command, "commands", {}).items():
        yield from _below(typer.Context(command, info_name=name, parent=ctx))


def shared() -> dict[str, str]:
    """Path below the installation's folder → text."""
    told = pages()
    return {
        **{f"share/man/man1/{one.path.replace(' ', '-')}.1": man_page(one, told) for one in told},
        "share/bash-completion/completions/backfill": bash(told),
        "share/zsh/site-functions/_backfill": zsh(told),
        "share/fish/vendor_completions.d/backfill.fish": fish(told),
    }
