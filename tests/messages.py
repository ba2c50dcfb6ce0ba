"""docs/messages.md: every message that a user can meet, read off the source. `python tests/messages.py` writes it.

A message is the first argument of an error, of a limit, a check or a gate. A call that hands on a parameter of its
function is none: its caller is. Placeholders are called as the value is in the code.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backfill_cli import errors

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/messages.md"

GROUPS = {
    "Commands and options": ("commands/", "backfill_cli/api/", "backfill_cli/main", "backfill_cli/view/"),
    "The config": ("backfill_cli/config/", "backfill_cli/registry", "backfill_cli/contracts/options"),
    "Files as the upstream": ("backfill_cli/upstreams/files/", "backfill_cli/formats/"),
    "Kafka as the upstream": ("backfill_cli/upstreams/kafka/",),
    "Records, lines and their formats": ("backfill_cli/decode/",),
    "The schema registry": ("backfill_cli/schema_registry/",),
    "PostgreSQL as the upstream": ("backfill_cli/upstreams/postgres/", "backfill_cli/cdc/"),
    "Lake tables as the upstream": ("backfill_cli/upstreams/delta/", "backfill_cli/upstreams/iceberg/"),
    "PostgreSQL, on either side": ("backfill_cli/postgres_",),
    "Kafka, on either side": ("backfill_cli/kafka/",),
    "DuckDB as the sink": ("backfill_cli/sinks/duckdb/", "backfill_cli/duckdb_errors"),
    "PostgreSQL as the sink": ("backfill_cli/sinks/postgres/",),
    "Kafka as the sink": ("backfill_cli/sinks/kafka/",),
    "Lake tables as the sink": ("backfill_cli/sinks/delta/", "backfill_cli/sinks/iceberg/", "backfill_cli/lake/"),
    "Any sink": ("backfill_cli/sinks/", "backfill_cli/contracts/"),
    "Derived tables": ("backfill_cli/derived/", "backfill_cli/sinks/sql/upkeep"),
    "Planning and starting a job": ("backfill_cli/engine/job/",),
    "A running job": (
        "backfill_cli/engine/",
        "backfill_cli/strategies/",
        "backfill_cli/model/",
        "backfill_cli/errors",
    ),
    "Checking: doctor, verify, cutover": (
        "backfill_cli/engine/doctor",
        "backfill_cli/engine/job/machine",
        "backfill_cli/engine/verify/",
        "backfill_cli/engine/cutover",
    ),
    "The catalog": ("backfill_cli/catalog/",),
    "Spark and Java": ("backfill_cli/spark/",),
    "Schedulers": ("backfill_cli/integrations/",),
}
"""By what the user does or has: the modules whose messages these are; the longest beginning counts."""

OTHERS = {
    "Limit": "limit",
    "Gate": "gate",
    "ok": "check",
    "warning": "check",
    "failed": "check",
    "Unreadable": "record",
}
"""What says something without being an error, and what that is called here."""
SECOND = {"Gate": 2, "ok": 1, "warning": 1, "failed": 1, "ConfigError": 1}
"""Where a call's text is not its first argument."""
IN_WORDS = {
    "spell_known": "; did you mean …?",
    "spell_meant": "; did you mean …?",
    "start_over": "backfill drop {job} --confirm {job}",
    "free_space": "free disk space: df -h {folder}",
}


REASONS = frozenset({"told", "said", "exc", "error", "text", "what", "why", "shown"})
"""Names of what another program, or another place, says."""


@dataclass(frozen=True)
class Message:
    """kind: an error's class, or what else it is. hint: what to do, empty if nothing is said."""

    file: str
    line: int
    kind: str
    text: str
    hint: str

    @property
    def code(self) -> str:
        """How the command ends, or what it is if that ends none."""
        kind = kinds().get(self.kind)
        return OTHERS[self.kind] if kind is None else f"exit {kind}"

    @property
    def group(self) -> str:
        fits = [(len(one), group) for group, ones in GROUPS.items() for one in ones if self.file.startswith(one)]
        return max(fits)[1]


@cache
def kinds() -> Mapping[str, int]:
    """Errors of ours by their class's name: the exit code."""
    found = {name: one.exit_code for name, one in vars(errors).items() if _is_error(one)}
    before = -1
    while before < len(found):
        before = len(found)
        for _, tree in modules():
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    for base in node.bases:
                        if isinstance(base, ast.Name) and base.id in found:
                            found.setdefault(node.name, found[base.id])
    return found


def _is_error(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, errors.BackfillError)


@cache
def modules() -> tuple[tuple[str, ast.Module], ...]:
    paths = sorted([*(ROOT / "backfill_cli").rglob("*.py"), *(ROOT / "commands").rglob("*.py")])
    return tuple((str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))) for path in paths)


@cache
def messages() -> tuple[Message, ...]:
    of_modules = {_dotted(file): dict(_constants(tree)) for file, tree in modules()}
    found = []
    for file, tree in modules():
        constants = dict(_imported(tree, of_modules)) | of_modules[_dotted(file)]
        of_file = {name for name, _ in _functions(tree)}
        carriers: dict[str, tuple[str, int]] = {}
        for function, call, kind, place in _calls(tree, carriers):
            told = call.args[place] if len(call.args) > place else None
            if told is None or (_kind_of(call) in of_file and _kind_of(call) in kinds()):
                continue
            words = _Words(_locals(function), constants)
            text = words.of(told)
            named = [one.value for one in call.keywords if one.arg in ("hint", "fix")]
            rest = named + call.args[place + 1 + (kind == "Limit") :]
            hint = words.of(rest[0]) if rest else ""
            if re.search(r"[a-z]{2}", re.sub(r"\{.*?\}", "", text)):
                found.append(Message(file, call.lineno, kind, text, "" if hint == "{hint}" else hint))
    return tuple(found)


def _constants(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield from ((one.id, node.value) for one in node.targets if isinstance(one, ast.Name))


def _imported(
    tree: ast.Module, of_modules: Mapping[str, Mapping[str, ast.expr]]
) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for one in node.names:
                whole = of_modules.get(f"{node.module}.{one.name}", {})
                yield from whole.items()  # a module, whose constants are its attributes
                value = of_modules.get(str(node.module), {}).get(one.name)
                if value is not None:
                    yield one.asname or one.name, value


def _dotted(file: str) -> str:
    parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts if parts[0] == "backfill_cli" else ["backfill_cli", *parts])


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    return ((node.name, node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def _calls(
    tree: ast.Module, carriers: dict[str, tuple[str, int]]
) -> Iterator[tuple[ast.FunctionDef | None, ast.Call, str, int]]:
    """Each call that says something: its function, the kind, and the place of the text among its arguments.

    carriers: filled with the functions of this module that hand on a text: the kind, and its place.
    """
    calls = list(_in_functions(tree, None))
    before = -1
    while before < len(carriers):
        before = len(carriers)
        for function, call in calls:
            said = _said(call, carriers)
            if said is None or function is None or len(call.args) <= said[1]:
                continue
            told, given = call.args[said[1]], _parameters(function)
            if isinstance(told, ast.Name) and told.id in given and function.name not in ("__init__", "of", "read"):
                bound = given[:1] in (["self"], ["cls"])
                carriers.setdefault(function.name, (said[0], given.index(told.id) - bound))
    for function, call in calls:
        said = _said(call, carriers)
        if said is not None and not (len(call.args) > said[1] and _handed_on(call.args[said[1]], function)):
            yield function, call, *said


def _in_functions(
    node: ast.AST, function: ast.FunctionDef | None
) -> Iterator[tuple[ast.FunctionDef | None, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call):
            yield function, child
        yield from _in_functions(child, child if isinstance(child, ast.FunctionDef) else function)


def _kind_of(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _said(call: ast.Call, carriers: Mapping[str, tuple[str, int]]) -> tuple[str, int] | None:
    name = _kind_of(call)
    if name in carriers:
        return carriers[name]
    plain = isinstance(call.func, ast.Name)
    return (name, SECOND.get(name, 0)) if plain and (name in kinds() or name in OTHERS) else None


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)]


def _handed_on(told: ast.expr, function: ast.FunctionDef | None) -> bool:
    return isinstance(told, ast.Name) and function is not None and told.id in _parameters(function)


def _locals(function: ast.FunctionDef | None) -> dict[str, ast.expr]:
    """Names to which the function gives one text, and that one."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(function) if function is not None else ():
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


@dataclass(frozen=True)
class _Words:
    """What an expression says. texts: of names in its function; constants: of all modules."""

    texts: Mapping[str, ast.expr]
    constants: Mapping[str, ast.expr]

    def of(self, node: ast.expr, depth: int = 0) -> str:
        match node:
            case ast.Constant(value=value):
                return value if isinstance(value, str) else str(value)
            case ast.JoinedStr(values=parts):
                return "".join(self.of(one, depth) for one in parts)
            case ast.FormattedValue(value=value, conversion=conversion):
                told = self.of(value, depth)
                return f"'{told}'" if conversion == ord("r") and re.fullmatch(r"\{\w+\}", told) else told
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return self.of(left, depth) + self.of(right, depth)
            case ast.IfExp(body=body, orelse=orelse):
                ways = [self.of(body, depth), self.of(orelse, depth)]
                return "/".join(ways) if all(ways) else f"[{''.join(ways)}]"
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return "; ".join(self.of(one, depth) for one in parts)
            case ast.BoolOp(values=[first, *_]):
                return self.of(first, depth)
            case ast.Name(id=name):
                value = self.texts.get(name, self.constants.get(name) if name.strip("_").isupper() else None)
                itself = value is not None and any(
                    isinstance(x, ast.Name) and x.id == name for x in ast.walk(value)
                )
                if depth < 4 and value is not None and not itself and self._is_text(value):
                    return self.of(value, depth + 1)
                if name == "START_OVER":
                    return "drop the job and start over"
                return f"{{{'reason' if name in REASONS else name.strip('_').lower()}}}"
            case ast.Attribute(attr=attr, value=value):
                constant = self.constants.get(attr) if attr.isupper() else None
                if constant is not None and depth < 4:
                    return self.of(constant, depth + 1)
                return f"{{{attr.strip('_')}}}"
            case ast.Call():
                return self._call(node, depth)
            case ast.Subscript(value=value):
                return self.of(value, depth) if not self._is_text(value) else "{…}"
        return "{…}"

    def _call(self, node: ast.Call, depth: int) -> str:
        name, args = _kind_of(node), node.args
        if name in IN_WORDS:
            return IN_WORDS[name]
        if name == "command":
            return "; ".join(f"backfill {self.of(one, depth)}" for one in args)
        if name in ("sql", "shell", "joined"):
            return "; ".join(self.of(one, depth) for one in args)
        if name == "retried":
            return "; ".join([*(self.of(one, depth) for one in args), "it is retried automatically"])
        if name == "in_config" and args:
            return self.of(args[0], depth)
        if name in ("spell_count", "plural") and len(args) == 2:
            word = self.of(args[1], depth)
            return f"{self.of(args[0], depth) + ' ' if name == 'spell_count' else ''}{word}s"
        if name in ("join", "strip", "lower", "removeprefix", "removesuffix", "also") and isinstance(
            node.func, ast.Attribute
        ):
            if name == "also":
                return self.of(node.func.value, depth) + "".join(self.of(one, depth) for one in args)
            return self.of(args[0], depth) if name == "join" and args else self.of(node.func.value, depth)
        if (
            name in ("len", "sum", "str", "sorted", "repr", "quote", "map", "list", "tuple", "abs", "round")
            and args
        ):
            return self.of(args[-1], depth)
        if name.startswith("spell_") and args:
            return self.of(args[0], depth)
        return f"{{{name.strip('_') or '…'}}}"

    def _is_text(self, node: ast.expr) -> bool:
        match node:
            case ast.Constant(value=value):
                return isinstance(value, str)
            case ast.JoinedStr():
                return True
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                return self._is_text(left) or self._is_text(right)
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_text(body) and self._is_text(orelse)
            case ast.Call():
                return _kind_of(node) in {"command", "in_config", "sql", "shell", "joined", "retried", *IN_WORDS}
        return False


def page() -> str:
    lines = [INTRODUCTION]
    for group in GROUPS:
        told = dict.fromkeys((one.code, one.text, one.hint) for one in messages() if one.group == group)
        if told:
            lines += [f"## {group}", "", "| message | | what to do |", "| --- | --- | --- |"]
            lines += [f"| {_cell(text)} | {code} | {_cell(hint)} |" for code, text, hint in sorted(told)]
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _cell(text: str) -> str:
    return re.sub(r"([|<>*_`\\])", r"\\\1", " ".join(text.split()))


INTRODUCTION = """# Messages

<!-- Written by `python tests/messages.py`; a test checks it. -->

Every message of this program, by what you do when you meet it. `{…}` stands for a value. Beside it stands the exit
code of the command that it ends (*exit 2*; the table is in [operations.md](operations.md)), or where you see it: a
*limit* is what `status` says holds a job up, a *check* is a line of `doctor`, a *gate* one of `cutover`, and a
*record* is why a row was quarantined, or stopped the job. What to do is printed after `Try:`.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
