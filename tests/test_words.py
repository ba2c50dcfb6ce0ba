"""What a person sees says the field's words; and no room reads another's words.

Nothing in the product searches or replaces in the text of an error or a hint.

What an error says is for people; what the program must know of it is its class and the parts of its `Hint`.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from test_layers import ROOT, sources

WORDS = frozenset({"hint", "message", "text", "fix", "limited_by", "waiting_for", "not_converging", "refused"})
"""Attributes that hold words of errors, checks, gates, limits and entries, or values that are put into words."""

NAMES = frozenset({"fault", "hint", "message", "reason", "way_on", "why"})
"""Names that hold them wherever they occur."""

ENDS = {"startswith", "endswith", "removeprefix", "removesuffix"}
PARTS = {"replace", "split", "rsplit", "partition", "rpartition", "find", "rfind"}
PATTERNS = {"search", "match", "fullmatch", "sub", "subn", "findall", "finditer"}
SEARCHES = ENDS | PARTS | PATTERNS

ERRORS = frozenset({"exc", "error"})
"""What a caught error is called here."""

FOREIGN = {
    "backfill_cli/config/": "those of TOML and pydantic",
    "backfill_cli/duckdb_errors.py": "DuckDB's",
    "backfill_cli/engine/staging/": "Spark's, of a transform and of a full disk",
    "backfill_cli/lake/": "those of delta-rs, pyiceberg and Spark",
    "backfill_cli/sinks/delta/": "those of delta-rs and Spark",
    "backfill_cli/sinks/postgres/": "PostgreSQL's",
    "backfill_cli/spark/": "Spark's, and the system's",
    "backfill_cli/upstreams/delta/": "those of delta-rs and Spark",
    "backfill_cli/upstreams/files/": "those of DuckDB and pyarrow",
    "backfill_cli/upstreams/kafka/": "Spark's Kafka source's",
    "backfill_cli/upstreams/postgres/": "PostgreSQL's",
}
"""Where the text of a foreign error (`str(exc)`) may be read: it becomes one of ours there."""

CROSSING = {
    "backfill_cli/config/faults.py": "pydantic's messages",
    "backfill_cli/spark/failures.py": "our own errors as they come out of Spark: class, place, hint as JSON",
}
"""Modules whose messages are not words for people."""


def readings(path: Path, errors: frozenset[str] = ERRORS) -> Iterator[tuple[int, str]]:
    """Where a module looks for words in a text that is for people: line, and what it does.

    errors: names of errors whose text is such a text.
    """
    tree = ast.parse(path.read_text("utf-8"))
    for scope in ast.walk(tree):
        if isinstance(scope, ast.FunctionDef | ast.Lambda):
            words = _held(scope, errors)
            for node in ast.walk(scope):
                if _reads(node, words, errors):
                    yield node.lineno, ast.unparse(node)  # type: ignore[attr-defined]


def _held(scope: ast.AST, errors: frozenset[str]) -> set[str]:
    """Names that hold such a text in this function: what is made of it, too."""
    words = set(NAMES)
    before = -1
    while before < len(words):
        before = len(words)
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign | ast.NamedExpr | ast.For | ast.comprehension):
                value = node.iter if isinstance(node, ast.For | ast.comprehension) else node.value
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if _is_words(value, words, errors):
                    words |= {
                        one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)
                    }
    return words


def _is_words(node: ast.expr, words: set[str], errors: frozenset[str]) -> bool:
    match node:
        case ast.Name(id=name):
            return name in words
        case ast.Attribute(attr=attr):
            return attr in WORDS
        case ast.Call(func=ast.Name(id="str"), args=[of]):
            return _is_words(of, words, errors) or (isinstance(of, ast.Name) and of.id in errors)
        case ast.Call(func=ast.Attribute(value=of, attr=attr)):
            return attr in SEARCHES | {"strip", "lower", "splitlines"} and _is_words(of, words, errors)
        case ast.Subscript(value=of):
            return _is_words(of, words, errors)
        case ast.Tuple(elts=parts) | ast.BoolOp(values=parts):
            return any(_is_words(one, words, errors) for one in parts)
        case ast.IfExp(body=one, orelse=other):
            return _is_words(one, words, errors) or _is_words(other, words, errors)
    return False


def _reads(node: ast.AST, words: set[str], errors: frozenset[str]) -> bool:
    match node:
        case ast.Compare(ops=ops, comparators=others):
            found = zip(ops, others, strict=True)
            return any(isinstance(op, ast.In | ast.NotIn) and _is_words(one, words, errors) for op, one in found)
        case ast.Call(func=ast.Attribute(attr="split"), args=[]):  # at white space
            return False
        case ast.Call(func=ast.Attribute(value=of, attr=attr), args=args) if attr in SEARCHES:
            return any(_is_words(one, words, errors) for one in (of, *args))
    return False


def test_nothing_looks_for_words_in_an_error_or_a_hint() -> None:
    wrong = []
    for path in sources():
        file = str(path.relative_to(ROOT))
        if file not in CROSSING:
            errors = frozenset() if file.startswith(tuple(FOREIGN)) else ERRORS
            wrong += [f"{file}:{line}: {what}" for line, what in readings(path, errors)]
    assert not wrong, "\n".join(wrong)


def test_each_exception_is_needed() -> None:
    read = {str(path.relative_to(ROOT)) for path in sources() if any(readings(path))}
    assert not [one for one in (*FOREIGN, *CROSSING) if not any(file.startswith(one) for file in read)]


@pytest.mark.parametrize(
    "text",
    [
        "if 'start over' in error.hint: pass",
        "told = view.limited_by\n    told.startswith('paused by ')",
        "hint = RETRIED.sub('', self.hint)",
        "way_on.replace('--config FILE', file)",
        "entry.text.startswith('failed: ')",
        "fault = report.fault\n    fault.endswith(' in its row')",
        "for refusal in report.refused: refusal.partition('. Try: ')",
        "said = str(exc)\n    'No space left' in said",
        "[told.replace(was, option) for told in (error.message, error.hint)]",
    ],
)
def test_what_parsed_words_before_is_found(text: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f"def of(view, exc, error, report, file):\n    {text}\n", "utf-8")
    assert list(readings(module))


PRIVATE = {
    r"epochs?": "commit",
    r"barriers?": "commit",
    r"splits?": "part",
    r"taker|the taking": "what reads the log",
    r"side tables?": "a table of ours, or a quarantine table",
    r"drained|in hand|in flight": "a plain verb",
    r"was told|is told|been told|been seen": "a plain verb",
    r"not found|no such (?:file|job|bucket|program|table|topic|directory)": "does not exist",
}
"""Words of ours that no person reads, and what stands for them there. They stay in docs/design.md, in names of
code, in fields of JSON and in the catalog.
"""

WORD = re.compile(rf"(?<![\w.`'-])({'|'.join(PRIVATE)})(?![\w.`'])|\w\((?:e?s|ies)\)", re.IGNORECASE)
STATEMENT = re.compile(
    r"\b(SELECT|UPDATE|INSERT|DELETE|CREATE|ALTER|WHERE|FROM|JOIN|DROP|CHECK)\b|, pending_epochs,"
)

OF_OPTIONS = {
    "backfill_cli/upstreams/files/": ("epoch", "epochs"),  # upstream.changes.epoch, a column
    "backfill_cli/engine/job/select.py": ("barrier",),  # sections of the config
    "backfill_cli/config/template.py": ("barrier", "barriers"),  # [barrier], and catch_up.measure
}
"""Where such a word is an option's name."""

NOT_FOR_PEOPLE = {
    "backfill_cli/duckdb_errors.py": "DuckDB's words, to recognise its errors",
    "backfill_cli/sinks/sql/state.py": "comments of the job's own tables, and their columns",
}
PAGES_OF_CODE = {"design.md", "json.md", "catalog.md", "messages.md", "benchmarks.md"}
"""Pages that describe names of code, of fields and of the catalog's tables; and the texts of the product again."""


def said(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of what is no docstring, statement or assertion in a module; {} for what is computed."""
    tree = ast.parse(path.read_text("utf-8"))
    skip = {id(part) for node in ast.walk(tree) if isinstance(node, ast.Assert) for part in ast.walk(node)}
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for one in body if isinstance(body, list) else ():
            if isinstance(one, ast.Expr):
                skip.add(id(one.value))
        if isinstance(node, ast.JoinedStr):
            skip |= {id(part) for part in node.values if isinstance(part, ast.Constant)}
    for node in ast.walk(tree):
        if id(node) in skip:
            continue
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        if " " in text.strip() and not STATEMENT.search(text):
            yield node.lineno, " ".join(text.split())


def private(text: str, allowed: Sequence[str] = ()) -> list[str]:
    return [found[0] for found in WORD.finditer(text) if found[0].lower() not in allowed]


def test_no_text_of_the_product_has_a_private_word() -> None:
    wrong = []
    for path in sources():
        file = str(path.relative_to(ROOT))
        allowed = next((words for begin, words in OF_OPTIONS.items() if file.startswith(begin)), ())
        if file not in NOT_FOR_PEOPLE:
            found = ((line, private(text, allowed), text) for line, text in said(path))
            wrong += [f"{file}:{line}: {', '.join(words)}: {text[:90]}" for line, words, text in found if words]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda one: one.name
)
def test_no_page_for_users_has_a_private_word(page: Path) -> None:
    """Outside code, and where the page introduces the word (*epoch*)."""
    if page.name in PAGES_OF_CODE:
        return
    text = re.sub(r"```.*?```|`[^`]*`|\*\w+\*|NAME is [\w, \n]+\.", "", page.read_text("utf-8"), flags=re.DOTALL)
    allowed = ("epoch", "epochs") if page.name in ("files.md", "config.md") else ()
    found = [line.strip() for line in text.splitlines() if private(re.sub(r"timestamp\(s\)", "", line), allowed)]
    assert not found, "\n".join(found)


def test_a_private_word_is_found(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""An epoch."""\nassert x, f"an epoch {x}"\nsay(f"epoch {x}, {y} row(s)")\nask("SELECT epoch FROM t")\n'
    )
    assert [(line, private(text)) for line, text in said(module)] == [(3, ["epoch", "w(s)"])]
    assert private("set barrier.target; every Split: no such file") == ["Split", "no such file"]
