"""Every hint that names a command works in the very state that it is told in: brought about, then typed.

The states are in the modules named `…_states` beside this one, by where the error is made.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import catalog_states
import command_states
import engine_states
import lake_states
import pytest
import sink_states
from half_done import SINK
from hint_scene import Scene, scene
from hint_typed import typed

from backfill_cli import main
from backfill_cli.errors import BackfillError

__all__ = ["scene"]

pytestmark = pytest.mark.seconds

ROOT = Path(__file__).parents[3]
VERBS = "|".join(main.VERBS)
COMMAND = re.compile(rf"backfill (?:{VERBS})\b(?: (?!or\b)[^\s;,(#]+)*")
STATES = catalog_states.STATES | sink_states.STATES | engine_states.STATES | command_states.STATES

NEEDS_A_SERVER = {
    "backfill_cli/engine/verify/expected.py:_applied_first",
    "backfill_cli/sinks/postgres/verify.py:export",
}
"""The sink's say what DuckDB's says in the same states; `tests/contract/test_sink_postgres*.py` reach them, and
`tests/postgres` the upstream's.
"""

NEEDS_A_RUN = {
    "backfill_cli/engine/cutover.py:_cutting",
    "backfill_cli/engine/cutover.py:_require_reversible",
    "backfill_cli/engine/cutover.py:_swaps",
    "backfill_cli/sinks/duckdb/tables.py:drop",
    "backfill_cli/engine/job/select.py:require_same_strategy",
    "backfill_cli/engine/verify/fix.py:_require_fixable",
    "backfill_cli/engine/verify/job.py:require_drained",
    "backfill_cli/engine/verify/job.py:require_known",
    "commands/verify.py:verify",
}
"""Their states take a run to be reached: `test_hints_cutover.py` and `test_hints_verify.py` type them, and of a
chain that took its log tests/postgres/test_chain_jobs.py. Or their commands compare, which takes Spark:
tests/crash/test_kill_fix.py types them.
"""

NEEDS_SPARK = {
    "backfill_cli/contracts/refusals.py:no_record",
    "backfill_cli/sinks/iceberg/live.py:_require_none_lost",
    "backfill_cli/lake/state.py:at_one_epoch",
    "backfill_cli/sinks/delta/restored.py:_require_same",
    "backfill_cli/sinks/delta/tables.py:marked",
    "backfill_cli/sinks/iceberg/tables.py:refuse_live",
    "backfill_cli/sinks/iceberg/live.py:_forward",
    "backfill_cli/lake/sink.py:at_one_epoch",
}
"""Of Iceberg tables, which Spark makes; of two tables at two epochs; of a sink whose folder of attempts is gone;
of a table on an object store. `tests/contract/test_sink_*.py` reach them.
"""


def kinds_of(kind: type[BackfillError]) -> Iterator[type[BackfillError]]:
    yield kind
    for more in kind.__subclasses__():
        yield from kinds_of(more)


def sites() -> Iterator[tuple[str, bool]]:
    """Every function that raises or makes an error of ours, and whether it holds the text of a command."""
    kinds = {kind.__name__ for kind in kinds_of(BackfillError)}
    made = re.compile(rf"\b(?:{'|'.join(kinds)})\(")
    for file in sorted([*(ROOT / "backfill_cli").rglob("*.py"), *(ROOT / "commands").glob("*.py")]):
        code = file.read_text("utf-8")
        lines = code.splitlines()
        for node in ast.walk(ast.parse(code)) if made.search(code) else ():
            if not isinstance(node, ast.FunctionDef):
                continue
            if not made.search("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                continue
            parts, doc = list(ast.walk(node)), ast.get_docstring(node, clean=False)
            calls = {
                part.func.id for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
            }
            texts = [
                part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)
            ]
            if calls & kinds:
                named = any(COMMAND.search(text) for text in texts if text != doc)
                yield f"{file.relative_to(ROOT)}:{node.name}", named


def test_every_error_whose_hint_names_a_command_has_its_states_here() -> None:
    states = {*STATES, *lake_states.STATES} | NEEDS_A_SERVER | NEEDS_A_RUN | NEEDS_SPARK
    found = list(sites())
    assert {site for site, named in found if named} <= states <= {site for site, _ in found}


def _makes(error: BackfillError, frame: FrameType) -> bool:
    return frame.f_code.co_name == "__init__" and frame.f_locals.get("self") is error


@pytest.fixture
def made_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Where each error of ours was made, as `sites` names it."""
    places: list[str] = []
    make = BackfillError.__init__

    def noted(self: BackfillError, *told: Any) -> None:
        frame = sys._getframe(1)
        while _makes(self, frame) and frame.f_back is not None:
            frame = frame.f_back
        code = frame.f_code
        if Path(code.co_filename).is_relative_to(ROOT):
            places.append(f"{Path(code.co_filename).relative_to(ROOT)}:{code.co_name}")
        make(self, *told)

    monkeypatch.setattr(BackfillError, "__init__", noted)
    return places


@pytest.mark.parametrize(
    ("sink", "site", "state"),
    [
        *(
            pytest.param(SINK, site, state, id=state.__name__)
            for site, states in STATES.items()
            for state in states
        ),
        *(
            pytest.param(lake_states.SINK, site, state, id=f"delta-{state.__name__}")
            for site, states in lake_states.STATES.items()
            for state in states
        ),
    ],
)
def test_each_command_of_a_hint_works_where_it_is_told(
    scene: Callable[..., Scene], made_at: list[str], sink: str, site: str, state: Callable[[Scene], str]
) -> None:
    index, count = 0, 1
    while index < count:
        s = scene(str(index), sink)
        shown = state(s)
        assert site in made_at[-3:]  # who says it before there is a job asks the catalog once more
        with typed(shown) as hint:
            commands = hint.commands(FILE="job.toml")
            count = len(commands)
            done = s.run(*commands[index])
            assert done.exit_code == 0, (commands[index], done.stderr, done.exception)
        index += 1
