"""What must hold for every hint that any test builds or prints: all that can be typed of it is accepted as typed.

Commands by the program's own parser, SQL by a parser of the system that it is meant for, settings by the config's
models. No state is needed for it; that the promise is kept is for the test of that state (`typed`).
"""

import shlex
from collections.abc import Callable, Iterator
from functools import cache
from typing import Annotated, Any

import hint_words
import typer
import typer.main
from pydantic import BaseModel, TypeAdapter, ValidationError

from backfill_cli import main, registry
from backfill_cli.config.sections import JOB_NAME, JobFile, Table

Parse = Callable[[str], str]
"""Of a statement: what is wrong with it, empty if nothing."""

LAKES = ("delta", "iceberg", "lake")


def faults(text: str, file: str, parsers: dict[str, Parse]) -> Iterator[str]:
    """What cannot be typed in a hint of this module. parsers: by system; one that is missing checks nothing."""
    for command in hint_words.commands(text):
        yield from _command(command)
    for option in hint_words.OPTION.findall(hint_words.without_typed(text)):
        if option not in _options():
            yield f"no command has the option {option}"
    parse = parsers.get(system(file))
    for statement in hint_words.statements(text):
        wrong = parse(statement) if parse else ""
        if wrong:
            yield f"{statement!r} is not {system(file)}'s SQL: {wrong}"
    for path in hint_words.paths(text):
        if path not in fields():
            yield f"the config has no option {path}"
    for setting in hint_words.settings(text):
        yield from _setting(setting, text)


def system(file: str) -> str:
    """Whose SQL a hint of this module is."""
    parts = file.removesuffix(".py").split("/")
    if any(part in LAKES for part in parts):
        return "spark"
    return "duckdb" if "duckdb" in parts else "postgres"


def placeholders(text: str) -> Iterator[str]:
    """What a printed hint leaves to the reader of its commands, though who prints it may know it."""
    for command in hint_words.commands(text):
        if "FILE" in command.split():
            yield f"{command!r}: FILE is no name of a file"


@cache
def _command(command: str) -> tuple[str, ...]:
    return tuple(_of_command(command))


def _of_command(command: str) -> Iterator[str]:
    try:
        words = shlex.split(command)[1:]
    except ValueError as error:
        yield f"{command!r} is no command for a shell: {error}"
        return
    root = _root()
    with _context(root) as context:
        verb = root.get_command(context, words[0])
        if verb is None:
            yield f"{command!r}: there is no command {words[0]!r}"
            return
        try:
            parsed = verb.make_context(words[0], list(words[1:]), parent=context)
        except (typer.TyperException, main.BackfillError) as error:
            said = error.format_message() if isinstance(error, typer.TyperException) else str(error)
            yield f"{command!r} is not accepted: {said}"
            return
        except typer.Exit:
            return
    job = parsed.params.get("job")
    if job and not JOB_NAME.fullmatch(job):
        yield f"{command!r}: {job!r} is no job's name"


def _context(root: Any) -> Any:
    return root.make_context("backfill", ["status"]).scope(cleanup=False)


@cache
def _root() -> Any:
    return typer.main.get_command(main.app)


@cache
def _options() -> frozenset[str]:
    with _context(_root()) as context:
        verbs = [_root().get_command(context, verb) for verb in main.VERBS]
    of_all = {"--help", "--version"}
    return frozenset(of_all.union(*(one.opts + one.secondary_opts for verb in verbs for one in verb.params)))


@cache
def fields() -> dict[str, list[Any]]:
    """Every option of the config by its path: the types that it can have, one of each connector that has it."""
    found: dict[str, list[Any]] = {}
    _collect("", JobFile, found)
    _collect("tables.", Table, found)
    for kind in registry.known(registry.UPSTREAMS):
        connector = registry.upstream(kind)
        _collect("upstream.", connector.options, found)
        for side, of in (("snapshot", connector.snapshot), ("changes", connector.changes)):
            if of is not None:
                found.setdefault(f"upstream.{side}", []).append(of.options)
                _collect(f"upstream.{side}.", of.options, found)
    for kind in registry.known(registry.SINKS):
        _collect("sink.", registry.sink(kind).options, found)
    found |= {"upstream.type": [str], "sink.type": [str]}
    return found


def _collect(prefix: str, model: type[BaseModel], found: dict[str, list[Any]]) -> None:
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        kind: Any = field.annotation
        for data in field.metadata:
            kind = Annotated[kind, data]
        found.setdefault(path, []).append(kind)
        for inner in _models(field.annotation):
            _collect(f"{path}.", inner, found)


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for one in getattr(kind, "__args__", ()):
        yield from _models(one)


def _setting(setting: hint_words.Setting, text: str) -> Iterator[str]:
    """A path from its root; without one, the section must be named before it."""
    known = fields()
    candidates = [path for path in known if path == setting.path]
    if not candidates and "." not in setting.path:
        candidates = [
            path
            for path in known
            if path.rpartition(".")[2] == setting.path
            and f"{path.split('.')[0]}" in text.partition(setting.text)[0]
        ]
    if not candidates:
        yield f"the config has no option {setting.path} (or the hint does not say in which table)"
    elif setting.value is None:
        yield f"{setting.text!r} is not TOML"
    elif not any(_accepts(kind, setting.value) for path in candidates for kind in known[path]):
        yield f"{setting.text!r}: {setting.path} does not accept this value"


def _accepts(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True
