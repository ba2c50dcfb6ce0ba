"""Who may import whom, read off the source: the table in CONTRIBUTING.md, and what no module may do at all."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backfill_cli import errors
from backfill_cli.main import VERBS

ROOT = Path(__file__).parent.parent

SHARED = {"errors", "model"}
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "failpoint": {"errors"},
    "folders": set(),
    "duckdb_errors": set(),
    "duckdb_instance": set(),
    "postgres_dsn": {"errors"},
    "postgres_driver": set(),
    "postgres_gauge": SHARED | {"postgres_dsn", "contracts"},
    "postgres_holders": SHARED,
    "postgres_errors": {"errors"},
    "kafka": SHARED,
    "model": {"errors"},
    "tried": set(),
    "unwinding": set(),
    "strategies": SHARED,
    "contracts": SHARED,
    "derived": SHARED | {"contracts"},
    "registry": SHARED | {"contracts"},
    "config": SHARED | {"contracts", "derived", "registry", "folders"},
    "spark": SHARED | {"__init__"},
    "cdc": SHARED | {"contracts", "spark", "formats"},
    "formats": SHARED | {"contracts", "spark"},
    "lake": SHARED | {"contracts", "derived", "failpoint", "spark", "formats"},
    "schema_registry": SHARED | {"contracts"},
    "decode": SHARED | {"contracts", "spark", "formats", "schema_registry"},
    "upstreams": SHARED
    | {"contracts", "failpoint", "spark", "cdc", "formats", "lake", "decode", "registry", "kafka", "__init__"}
    | {"schema_registry"}
    | {"postgres_driver", "postgres_dsn", "postgres_holders", "postgres_errors", "postgres_gauge"},
    "sinks": SHARED
    | {"contracts", "derived", "failpoint", "spark", "cdc", "decode", "formats", "lake", "kafka"}
    | {"duckdb_errors", "duckdb_instance"}
    | {"schema_registry"}
    | {"postgres_driver", "postgres_dsn", "postgres_holders", "postgres_errors", "postgres_gauge"},
    "catalog": SHARED | {"contracts", "failpoint", "folders", "duckdb_errors", "duckdb_instance", "unwinding"},
    "view": SHARED | {"catalog"},
    "engine": SHARED
    | {"contracts", "registry", "config", "strategies", "upstreams", "sinks", "catalog", "failpoint", "__init__"}
    | {"spark", "cdc", "formats", "lake", "folders", "tried", "unwinding"},
    "integrations": SHARED | {"catalog", "view", "api"},
    "api": SHARED | {"config", "catalog", "view", "__init__"},
    "commands": SHARED | {"api", "config", "catalog", "folders", "view"},
    "main": SHARED | {"commands", "view", "__init__"},
    "manual": {"main", "view", "__init__"},
    "__main__": {"main"},
}
"""A package or module of backfill_cli → those it may import anywhere in a module."""

IN_FUNCTIONS = {
    "__init__": {"api"},
    "api": {"engine"},
    "commands": {"engine"},
    "contracts": {"spark"},
}
"""What may be imported inside functions only: importing it costs what the command should not."""

ENGINE = ("staging", "spool", "job", "loop", "verify", "refill", "cutover", "doctor")
"""The rooms of the engine: each may import those before it."""

MAY_RUN_SPARK = {"spark", "cdc", "formats", "lake", "decode", "upstreams", "sinks", "engine"}

WITHOUT_SPARK = (
    "api.job",
    *(f"commands.{verb}" for verb in VERBS),
    "engine.cutover",
    "engine.job.drop",
    "engine.job.fixable",
    "engine.job.held",
    "engine.doctor",
    "engine.job.checks",
    *(
        f"{side}.{path.name}"
        for side in ("upstreams", "sinks")
        for path in (ROOT / "backfill_cli" / side).iterdir()
    ),
)
"""What commands import before they need Spark, or without ever needing it: pyspark takes longer than they do."""

SYSTEMS_SHARE = {"sql"}
"""Rooms of upstreams and sinks that are of no system: what several of them share."""

CONNECTOR_CLIENTS = {
    "numpy": {"decode", "upstreams"},
    "duckdb": {"sinks", "catalog", "duckdb_errors", "duckdb_instance", "upstreams", "decode"},
    "pyarrow": {"spark", "cdc", "formats", "lake", "decode", "upstreams", "sinks", "engine"},
}

FORBIDDEN_ATTRIBUTES = {
    "_jvm": "py4j internals do not exist over Spark Connect",
    "_jdf": "py4j internals do not exist over Spark Connect",
    "_jsparkSession": "py4j internals do not exist over Spark Connect",
    "_sc": "py4j internals do not exist over Spark Connect",
    "rdd": "the DataFrame API alone",
    "sparkContext": "does not exist over Spark Connect",
    "toPandas": "pandas is no dependency",
    "pandas_api": "pandas is no dependency",
    "foreach": "rows do not pass through Python",
    "collect": "data stays in Spark, Arrow and DuckDB",
    "toLocalIterator": "data stays in Spark, Arrow and DuckDB",
}
CLOCKS = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
FORBIDDEN_CALLS = {"eval": "no code from data", "exec": "no code from data"}
FORBIDDEN_MODULES = {"pandas", "pickle", "marshal", "shelve"}


@dataclass(frozen=True)
class Import:
    """One module that a file imports. deferred: inside a function. for_types: under TYPE_CHECKING."""

    module: str
    line: int
    deferred: bool
    for_types: bool


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


@cache
def sources() -> list[Path]:
    return sorted([*(ROOT / "backfill_cli").rglob("*.py"), *(ROOT / "commands").rglob("*.py")])


def layer(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return parts[0] if parts[0] == "commands" else parts[1]


def imports(path: Path) -> Iterator[Import]:
    def walk(node: ast.AST, deferred: bool, for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(name.name, child.lineno, deferred, for_types) for name in child.names)
            elif isinstance(child, ast.ImportFrom):
                yield from (Import(name, child.lineno, deferred, for_types) for name in imported_from(path, child))
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                yield from walk(child, deferred, True)
            else:
                yield from walk(child, deferred or isinstance(child, ast.FunctionDef | ast.Lambda), for_types)

    return walk(parsed(path), False, False)


def imported_from(path: Path, node: ast.ImportFrom) -> list[str]:
    """The modules of a `from … import …`, relative ones spelt out; a name may be a module or what is in it."""
    base = node.module or ""
    if node.level:
        package = ("backfill_cli.commands" if layer(path) == "commands" else "backfill_cli").split(".")
        if layer(path) != "commands":
            package = list(path.relative_to(ROOT).parent.parts)
        package = package[: len(package) - node.level + 1]
        base = ".".join([*package, base] if base else package)
    return [f"{base}.{name.name}" for name in node.names]


def ours(module: str) -> str | None:
    """The layer that a module of ours belongs to."""
    parts = module.split(".")
    if parts[0] != "backfill_cli":
        return None
    if len(parts) == 1:
        return "__init__"
    return parts[1] if parts[1] in MAY_IMPORT else "__init__"


def test_a_module_imports_only_the_layers_below_it() -> None:
    for path in sources():
        mine = layer(path)
        assert mine in MAY_IMPORT, f"{path}: a new layer; say in MAY_IMPORT what it may import"
        wrong = []
        for found in imports(path):
            theirs = ours(found.module)
            if theirs is None or theirs == mine or theirs in MAY_IMPORT[mine] or found.for_types:
                continue
            if found.deferred and theirs in IN_FUNCTIONS.get(mine, set()):
                continue
            wrong.append(f"{path}:{found.line}: {mine} imports {found.module}")
        assert not wrong, "\n".join(wrong)


def test_in_the_engine_a_room_imports_only_those_before_it() -> None:
    def room(module: str) -> int:
        return ENGINE.index(module.split(".")[2])

    for path in sources():
        if layer(path) == "engine" and path.stem != "__init__":
            mine = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
            found = [one for one in imports(path) if one.module.startswith("backfill_cli.engine.")]
            rising = [one.module for one in found if not one.for_types and room(one.module) > mine]
            assert not rising, f"{path}: {rising}"


def test_pyspark_is_imported_by_those_who_run_it() -> None:
    for path in sources():
        found = [one for one in imports(path) if one.module.split(".")[0] in {"pyspark", "py4j"}]
        assert not found or layer(path) in MAY_RUN_SPARK | {"contracts"}, path
        assert layer(path) != "contracts" or all(one.for_types for one in found)


def test_a_command_imports_no_pyspark_before_it_runs_spark() -> None:
    """As measured; with what each connector imports when it is opened."""
    opened = [
        found.module.rpartition(".")[0]
        for path in sources()
        if path.name == "__init__.py" and layer(path) in {"upstreams", "sinks"}
        for found in imports(path)
        if found.deferred and ours(found.module) is not None
    ]
    names = [f"backfill_cli.{name}" for name in WITHOUT_SPARK if "__" not in name] + opened
    look = (
        "import importlib, sys\n"
        f"for name in {names}:\n"
        "    importlib.import_module(name)\n"
        "    if 'pyspark' in sys.modules: sys.exit(f'{name} imports pyspark')\n"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_clients_stay_with_their_connectors() -> None:
    for path in sources():
        for found in imports(path):
            top = found.module.split(".")[0]
            assert top not in FORBIDDEN_MODULES, f"{path}:{found.line}: {top}"
            if top in CONNECTOR_CLIENTS and not found.for_types:
                assert layer(path) in CONNECTOR_CLIENTS[top], f"{path}:{found.line}: {layer(path)} imports {top}"


def test_upstreams_and_sinks_never_import_each_other() -> None:
    for path in sources():
        parts = path.relative_to(ROOT).parts
        if len(parts) > 2 and parts[1] in {"upstreams", "sinks"}:
            for found in imports(path):
                there = found.module.split(".")
                if there[:2] == ["backfill_cli", parts[1]] and len(there) > 2:
                    assert there[2] in {parts[2], *SYSTEMS_SHARE}, f"{path}:{found.line}: {found.module}"


def test_no_module_reaches_for_what_is_not_allowed() -> None:
    for path in sources():
        wrong = []
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
                wrong.append(f"{path}:{node.lineno}: .{node.attr}: {FORBIDDEN_ATTRIBUTES[node.attr]}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
                wrong.append(f"{path}:{node.lineno}: {node.func.id}(): {FORBIDDEN_CALLS[node.func.id]}")
        assert not wrong, "\n".join(wrong)


def test_a_broad_except_raises_as_ours() -> None:
    for path in sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "everything"
                if caught in {"everything", "Exception", "BaseException"}:
                    raises = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
                    assert raises, f"{path}:{node.lineno}: except {caught} that goes on"


def test_every_error_says_what_to_do_next() -> None:
    for path in sources():
        kinds = {
            name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, BaseException)
        }
        wrong = []
        for node in ast.walk(parsed(path)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in kinds - {"ConfigError"}
            ):
                told = len(node.args) > 1 or any(isinstance(one, ast.Starred) for one in node.args)
                if not told and not any(one.arg in ("hint", None) for one in node.keywords):
                    wrong.append(f"{path}:{node.lineno}: {node.func.id} without a hint")
        assert not wrong, "\n".join(wrong)


def test_every_module_says_where_it_stands() -> None:
    for path in sources():
        text = path.read_text("utf-8")
        if text.strip():
            assert ast.get_docstring(ast.parse(text)), f"{path}: no docstring"


def test_strategies_and_model_are_pure() -> None:
    """No clock, randomness, file or network: time and chance come in as arguments."""
    impure = {
        "time",
        "random",
        "os",
        "pathlib",
        "subprocess",
        "socket",
        "threading",
        "uuid",
        "secrets",
    }
    for path in sources():
        if layer(path) in {"model", "strategies"}:
            wrong = [one for one in imports(path) if one.module.split(".")[0] in impure and not one.for_types]
            assert not wrong, f"{path}: {wrong}"
            named = {ast.unparse(one) for one in ast.walk(parsed(path)) if isinstance(one, ast.Attribute)}
            assert not named & CLOCKS, f"{path}: {named & CLOCKS}"


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports a test module by its bare name where its folder is no package: the second one is not run."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if not (path.parent / "__init__.py").exists()]
    assert [name for name in set(names) - {"conftest.py"} if names.count(name) > 1] == []
