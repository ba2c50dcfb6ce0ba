"""The `backfill` command: one verb per file in `commands/`, each imported only when it is typed."""

import gc
import importlib
import os
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from backfill_cli import __version__
from backfill_cli.errors import BackfillError, Transient, UsageError
from backfill_cli.model.units import spell_meant
from backfill_cli.view.console import as_typed, from_here, typed_file
from backfill_cli.view.help import shown_page

GROUPS = {
    "Set up": {
        "init": "Write a config, filled in from your data",
        "plan": "Show what a start would do; change nothing",
        "doctor": "Check this machine, and a job's connections",
        "config": "Show a config's options, or their schema",
        "schema": "Print the JSON Schema of what --json prints",
    },
    "Run": {
        "start": "Create a job and run it, or continue it",
        "resume": "End a pause, or run a job that has stopped",
    },
    "Watch": {
        "status": "Show jobs: progress, lag, what limits them",
        "logs": "Print a job's log",
        "history": "List a job's newest commits and commands",
        "report": "Write a job's report as one HTML file",
        "wait": "Wait until a job is caught up, or has ended",
    },
    "Control": {
        "pause": "Stop reading at the next commit",
        "throttle": "Limit how fast the snapshot is read",
        "add": "Let a table join a job that runs",
        "remove": "Let a table leave a job that runs",
        "set": "Give a job its changed config while it runs",
        "refill": "Read a table, or a part of it, again",
        "stop": "End a job's run at the next commit",
    },
    "Check and finish": {
        "verify": "Compare the sink with the upstream, and fix it",
        "cutover": "Put the new table in the place of the old one",
        "drop": "Forget a job, with or without its tables",
    },
}
"""The verbs in the order of `--help`, each with its line there.

A verb's module in `commands` has a function of that name, or an `app` of its own verbs; and `EXAMPLES`.
"""

VERBS = tuple(verb for group in GROUPS.values() for verb in group)

EXAMPLES = (
    "backfill start --from data/orders --to warehouse.duckdb",
    "backfill status --watch",
    "backfill help start",
)

JSON = "--json"

ALIASES = {"list": "status"}


class OnDemand(MutableMapping[str, Any]):
    """verb → command, made from the verb's module on demand."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, typed: str) -> Any:
        verb = ALIASES.get(typed, typed)
        if verb not in VERBS:
            raise KeyError(verb)
        if verb not in self._made:
            module = importlib.import_module(f"backfill_cli.commands.{verb}")
            self._made[verb] = _command(module, verb)
        return self._made[verb]

    def __setitem__(self, verb: str, command: Any) -> None:
        self._made[verb] = command

    def __delitem__(self, verb: str) -> None:
        del self._made[verb]

    def __iter__(self) -> Iterator[str]:
        return iter(VERBS)

    def __len__(self) -> int:
        return len(VERBS)


def _command(module: Any, verb: str) -> Any:
    examples = "\n".join(module.EXAMPLES)
    if hasattr(module, "app"):
        for one in module.app.registered_commands:
            one.cls = Verb
        module.app.info.cls, module.app.info.epilog = Group, examples
        group = typer.main.get_group(module.app)
        group.name = verb
        return group
    alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    alone.command(verb, cls=Verb, epilog=examples)(getattr(module, verb))
    return typer.main.get_command(alone)


class AsTyped:
    """Makes typer take text and flags as they are.

    Its own conversion imports pydantic: half of what `pause` needs beyond its other imports.
    """

    def coerce(self, value: Any, **_: Any) -> Any:
        return value


def _as_typed(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        if parameter.type_descriptor.annotation in (str, bool):
            parameter._runtime_param = AsTyped()
    return parameters


class Verb(TyperCommand):
    """One verb, quick to parse."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _as_typed(super().get_params(ctx))

    def get_help(self, ctx: Any) -> str:
        return shown_page(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises UsageError for an option without its value before another option, which typer takes for it."""
        options = {name: one for one in self.get_params(ctx) for name in one.opts if name.startswith("-")}
        words = iter(args)
        for word in words:
            option = options.get(word)
            value = next(words, "") if option is not None and not option.is_flag and not option.count else ""
            if value in options:
                raise UsageError(f"option {word} has no value before {value}", f"{ctx.command_path} --help")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            require_folder()
            return super().invoke(ctx)
        except BackfillError as error:
            if isinstance(error, Transient):
                error.given_up()
            error.hint = as_typed(error.hint, ctx)
            unnamed = any(one.lacks_file for one in error.hint.commands)
            if "job" in ctx.params and unnamed and not typed_file(ctx.params):
                options = importlib.import_module("backfill_cli.commands._options")
                error.hint = error.hint.of_file(from_here(options.known_config(ctx.params)))
            raise


def require_folder() -> None:
    """Raises UsageError if the current folder was removed: no relative path could be found."""
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError(
            f"the current folder cannot be used: {error.strerror}", "change to another folder"
        ) from None


class Group(TyperGroup):
    """Commands of one kind. groups: title → name → its line in `--help`, for which no module is imported."""

    @property
    def groups(self) -> dict[str, dict[str, str]]:
        return {"Commands": {name: one.get_short_help_str(200) for name, one in self.commands.items()}}

    def get_params(self, ctx: Any) -> list[Any]:
        return _as_typed(super().get_params(ctx))

    def get_help(self, ctx: Any) -> str:
        return shown_page(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands and not ctx.resilient_parsing:
            meant = spell_meant(args[0], self.commands)
            raise UsageError(f"command {args[0]!r} does not exist{meant}", f"{ctx.command_path} --help")
        return super().resolve_command(ctx, args)


class Verbs(Group):
    """The verbs; each of their errors becomes message, hint and exit code."""

    groups = GROUPS

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = OnDemand()

    def make_context(self, info_name: Any, args: list[str], *rest: Any, **settings: Any) -> Any:
        if args[:1] == ["help"]:  # `help start` is `start --help`
            args = [*(word for word in args if word != "help"), "--help"]
        as_json = JSON in args  # errors of the other arguments are printed as JSON, too
        with exit_codes(as_json):
            made = super().make_context(info_name, args, *rest, **settings)
        made.meta[JSON] = as_json
        return made

    def invoke(self, ctx: Any) -> Any:
        with exit_codes(ctx.meta[JSON]):
            return super().invoke(ctx)


@contextmanager
def exit_codes(as_json: bool) -> Iterator[None]:
    """The only place where an error becomes message, hint and exit code; with --json also an object on stdout."""
    try:
        yield
    except BackfillError as error:
        _end(error, as_json)
    except typer.TyperException as error:
        where = getattr(error, "ctx", None)
        hint = f"{where.command_path} --help" if where is not None else "backfill --help"
        _end(UsageError(_unparsed(error), hint), as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:  # a bug of ours: Python prints it on stderr
        from backfill_cli.view.console import complain_json, leave

        leave(error)
        if as_json:
            complain_json(error)
        raise


def _unparsed(error: Any) -> str:
    """What typer says of words that it cannot parse; an option that does not exist, as other names."""
    if not hasattr(error, "possibilities"):
        return str(error.format_message()).replace("Value error, ", "", 1)  # pydantic's own prefix
    known = [name for one in error.ctx.command.get_params(error.ctx) for name in one.opts]
    return f"option {error.option_name} does not exist{spell_meant(error.option_name, known)}"


def _end(error: BackfillError, as_json: bool) -> None:
    from backfill_cli.view.console import complain, complain_json, leave

    if not error.shown:
        complain(error)
    leave(error)
    if as_json:
        complain_json(error)
    raise typer.Exit(error.exit_code) from None


app = typer.Typer(
    cls=Verbs,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    epilog="\n".join(EXAMPLES),
    context_settings={"help_option_names": ["-h", "--help"]},  # the verbs inherit it
)


@app.callback()
def backfill(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --version: also those of Python, Java and Spark.")
    ] = False,
) -> None:
    """Fill a derived table from an upstream that keeps changing, then follow it, under your control throughout.

    Jobs are kept in a catalog: .backfill/catalog.duckdb beside the config; without a config, in this folder or a
    parent folder; or where --catalog FILE or BACKFILL_CATALOG says.
    """
    if verbose and not version:
        raise UsageError("--verbose works only with --version", "add --version")
    if version:
        print(f"backfill {__version__}")
        if verbose:
            importlib.import_module("backfill_cli.commands._version").show_machine()
    elif context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(2)


COLLECTED_AFTER = 150_000
"""New objects after which Python looks for cycles among them. After 700, its own limit, it would 160 times while a
command is loaded: 8 % of what `plan` takes, and all of it is in use."""


def main() -> None:
    """What the console script runs."""
    gc.set_threshold(COLLECTED_AFTER)
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks must not suppress the whole message.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    app()
