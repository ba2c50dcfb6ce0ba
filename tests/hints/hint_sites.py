"""The inventory: every place in the product that gives an error, a check or a gate a hint. Read off the source.

A site is a call that binds a parameter named `hint` or `fix`, or the second one of an error of ours. A call that
hands on what it was given (a parameter of its function, the hint of another error) is none: its caller is.
"""

import ast
import gc
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CARRIES = ("hint", "fix")
REBUILT = {("backfill_cli/spark/failures.py", "_rebuilt"), ("backfill_cli/api/background.py", "_ended_with")}
"""They build an error again that came from another process."""
BUILDS = ("command", "in_config", "joined", "retried", "shell", "sql")
"""What makes a hint of its parts: a call is a hint of its site, not one of several sites."""
RETRIED = "it is retried automatically"


@dataclass(frozen=True)
class Site:
    """name: `module.py:function#n`, the n-th of that function. value: the name of the constant or function that is
    the hint, or the site's own. text: a pattern of what it says, None if that is computed. at: file, line, column.
    said: the text itself, if it is written out. in_spark: whether an expression raises it.
    """

    name: str
    value: str
    text: str | None
    at: tuple[str, int, int]
    said: str = ""
    in_spark: bool = False


@dataclass
class _Module:
    file: str
    dotted: str
    tree: ast.Module
    names: dict[str, str]  # as they are in this module → module.name where they are defined
    functions: list[ast.FunctionDef]
    classes: list[ast.ClassDef]
    blocks: list[ast.With]


_Call = tuple[ast.Call, str, frozenset[str]]
Carriers = dict[str, int]
"""module.name of a function or class → at which place of a call its hint is."""


@cache
def sites() -> tuple[Site, ...]:
    gc.disable()  # millions of nodes, none of which is garbage: it took two thirds of the time
    try:
        modules = [_module(file) for file in _files()]
    finally:
        gc.enable()
    carriers, expressions = _carriers(modules), frozenset(_expressions(modules))
    constants = {
        f"{one.dotted}.{target.id}": node.value
        for one in modules
        for node in one.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return tuple(site for module in modules for site in _sites(module, carriers, expressions, constants))


def _files() -> Iterator[Path]:
    for folder in ("backfill_cli", "commands"):
        yield from sorted((ROOT / folder).rglob("*.py"))


def _module(path: Path) -> _Module:
    file = str(path.relative_to(ROOT))
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    dotted = ".".join(parts if parts[0] == "backfill_cli" else ["backfill_cli", *parts])
    tree = ast.parse(path.read_text("utf-8"))
    names = {node.name: f"{dotted}.{node.name}" for node in tree.body if isinstance(node, _DEFINED)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {one.id: f"{dotted}.{one.id}" for one in node.targets if isinstance(one, ast.Name)}
    module = _Module(file, dotted, tree, names, [], [], [])
    for node in _statements(tree):
        match node:
            case ast.ImportFrom(module=str(source), level=0):
                names |= {one.asname or one.name: f"{source}.{one.name}" for one in node.names}
            case ast.FunctionDef():
                module.functions.append(node)
            case ast.ClassDef():
                module.classes.append(node)
            case ast.With():
                module.blocks.append(node)
    return module


_DEFINED = (ast.ClassDef, ast.FunctionDef)
_BODIES = ("body", "handlers", "cases", "orelse", "finalbody")


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Level by level, as `ast.walk`, which also walks the expressions: most of a tree."""
    level: list[ast.AST] = [tree]
    while level:
        yield from level
        bodies = (getattr(node, name, ()) for node in level for name in _BODIES)
        level = [node for body in bodies if isinstance(body, list) for node in body]


def _carriers(modules: list[_Module]) -> Carriers:
    found: Carriers = {"backfill_cli.errors.BackfillError": 1, "backfill_cli.errors.ConfigError": 2}
    for module in modules:
        if module.dotted == "backfill_cli.errors" or "view" in module.dotted:
            continue
        for node in module.functions:
            told = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args)]
            of = [told.index(name) for name in CARRIES if name in told]
            if of:
                method = told[:1] == ["self"]
                found[f"{module.dotted}.{node.name}"] = of[0] - method
    before = -1
    while before < len(found):  # until no class is known to inherit that was not
        before = len(found)
        for module in modules:
            for node in module.classes:
                bases = [_defined(base, module) for base in node.bases]
                place = next((found[base] for base in bases if base in found), None)
                if place is not None:
                    found.setdefault(f"{module.dotted}.{node.name}", place)
    found["backfill_cli.model.cutover.Gate"] = 3
    return found


def _expressions(modules: list[_Module]) -> Iterator[str]:
    """The functions that make a Column."""
    for module in modules:
        for node in module.functions:
            if node.returns is not None and ast.unparse(node.returns).strip("'") == "Column":
                yield f"{module.dotted}.{node.name}"


def _defined(node: ast.expr, module: _Module) -> str:
    if isinstance(node, ast.Name):
        return module.names.get(node.id, f"{module.dotted}.{node.id}")
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if node.value.id == "self":
            return f"{module.dotted}.{node.attr}"
        return f"{module.names.get(node.value.id, node.value.id)}.{node.attr}"
    return ""


def _sites(
    module: _Module, carriers: Carriers, expressions: frozenset[str], constants: dict[str, ast.expr]
) -> Iterator[Site]:
    count: dict[str, int] = defaultdict(int)
    # what leaves a block is raised at its `with`
    blocks = {item.context_expr: (node.lineno, node.col_offset) for node in module.blocks for item in node.items}
    for call, function, parameters in _calls(module.tree, "", frozenset()):
        place = carriers.get(_defined(call.func, module))
        if place is None or (module.file, function) in REBUILT:
            continue
        hint = call.args[place] if len(call.args) > place else None
        hint = next((one.value for one in call.keywords if one.arg in CARRIES), hint)
        if hint is None or _handed_on(hint, parameters) or (isinstance(hint, ast.Constant) and not hint.value):
            continue
        count[function] += 1
        name = f"{module.file}:{function}#{count[function]}"
        constant = _defined(hint, module) if isinstance(hint, ast.Name | ast.Attribute) else ""
        text = constants.get(constant, hint)
        in_spark = _defined(call.func, module) in expressions
        if in_spark and isinstance(text, ast.BinOp):  # it comes back as text
            text = ast.BinOp(constants.get(_defined(text.left, module), text.left), text.op, text.right)
        words = _words(text)
        value = constant if constant in constants else _function(hint, module) or name
        said = "" if None in words else "".join(map(str, words))
        at = (module.file, *blocks.get(call, (call.lineno, call.col_offset)))
        yield Site(name, value, _pattern(words), at, str(said), in_spark)


def _function(hint: ast.expr, module: _Module) -> str:
    """The function of ours that says this hint for several sites; empty if there is none."""
    name = _defined(hint.func, module) if isinstance(hint, ast.Call) and isinstance(hint.func, ast.Name) else ""
    ours = name in module.names.values() and name.startswith("backfill_cli.")
    return name if ours and name.rpartition(".")[2] not in BUILDS else ""


def _calls(node: ast.AST, function: str, parameters: frozenset[str]) -> list[_Call]:
    """Each call with the function that it is in, and what that one is given. In the order of the source."""
    found: list[_Call] = []
    _add_calls(node, function, parameters, found)
    return found


def _add_calls(node: ast.AST, function: str, parameters: frozenset[str], found: list[_Call]) -> None:
    for name in node._fields:  # not ast.iter_child_nodes: each node of the product comes here
        value = getattr(node, name, None)
        for child in value if value.__class__ is list else (value,):
            if isinstance(child, ast.Call):
                found.append((child, function or "module", parameters))
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                own = frozenset()
                if isinstance(child, ast.FunctionDef):
                    told = child.args
                    own = frozenset(one.arg for one in (*told.posonlyargs, *told.args, *told.kwonlyargs))
                _add_calls(child, f"{function}.{child.name}".lstrip("."), parameters | own, found)
            elif isinstance(child, ast.AST):
                _add_calls(child, function, parameters, found)


def _handed_on(hint: ast.expr, parameters: frozenset[str]) -> bool:
    if isinstance(hint, ast.Name):
        return hint.id in parameters
    if isinstance(hint, ast.BoolOp):
        return all(_handed_on(one, parameters) for one in hint.values)
    return isinstance(hint, ast.Attribute) and hint.attr in CARRIES


def _words(hint: ast.expr) -> list[str | None]:
    """What it says, in order: None for what is computed."""
    if isinstance(hint, ast.Constant):
        return [str(hint.value)]
    if isinstance(hint, ast.JoinedStr):
        return [word for one in hint.values for word in _words(one)]
    if isinstance(hint, ast.BinOp) and isinstance(hint.op, ast.Add):
        return [*_words(hint.left), *_words(hint.right)]
    if isinstance(hint, ast.Call) and isinstance(hint.func, ast.Name) and hint.func.id in BUILDS:
        before = "backfill " if hint.func.id == "command" else ""
        listed = [["; ", before, *_words(one)] for one in hint.args]
        words = [word for one in listed for word in one][1:]
        return [*words, "; " if words else "", RETRIED] if hint.func.id == "retried" else words
    return [None]


def _pattern(words: list[str | None]) -> str | None:
    found = "".join(".*" if word is None else re.escape(word) for word in words)
    return found if None not in words or sum(len(word) for word in words if word) > 12 else None
