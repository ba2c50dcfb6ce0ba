"""Records each hint that any process of a test run builds or prints: who built it, its text, and in which test.

`BACKFILL_HINTS` names the file: one JSON object a line, appended whole. Every process adds a text of a site once.
What is printed with `--json` goes to a file beside it.
"""

import json
import os
import sys
from collections import Counter
from contextlib import suppress
from functools import wraps
from importlib.machinery import SourceFileLoader
from itertools import islice
from types import FrameType, ModuleType
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
PRODUCT = (f"{ROOT}backfill_cli{os.sep}", f"{ROOT}commands{os.sep}")
SITES_AT_MOST = 6
TEXTS_AT_MOST = 200
"""Of one site in one process: a generator of inputs builds thousands that differ in a value only."""

Place = list[Any]
_written: set[tuple[str, str]] = set()
_texts: Counter[str] = Counter()
ANSWERS_AT_MOST = 100
"""Of one kind in one process."""
ANSWERS_FILE = ".answers"
_answers: Counter[str] = Counter()
latest: dict[str, list[Place]] = {}
"""Who built each text of this process last."""


def wrapped(loader: Any) -> Any:
    class Loader(type(loader)):  # type: ignore[misc]
        def exec_module(self, module: ModuleType) -> None:
            super().exec_module(module)
            _WRAPS[module.__name__.rpartition(".")[2]](module)

    if isinstance(loader, SourceFileLoader):
        return Loader(loader.name, loader.path)
    return loader


def _of_errors(errors: ModuleType) -> None:
    kind = errors.BackfillError
    make, way_on = kind.__init__, kind.way_on

    def init(self: Any, *told: Any, **named: Any) -> None:
        make(self, *told, **named)
        if self.hint:
            self.hint_places = places(sys._getframe(1), self)
            record("built", self.hint_places, str(self.hint))

    def on(self: Any, job: str) -> Any:
        said = way_on(self, job)
        record("way on", getattr(self, "hint_places", []), str(said))
        return said

    kind.__init__ = init
    kind.way_on = on


def _of_fixes(kind: Any) -> None:
    make = kind.__init__

    @wraps(make)  # what makes values by their types asks for its parameters
    def init(self: Any, *told: Any, **named: Any) -> None:
        make(self, *told, **named)
        by = sys._getframe(1)
        if self.fix and by.f_code.co_filename.startswith(PRODUCT):  # not where it is shown in other words
            record("built", places(by, self), str(self.fix))

    kind.__init__ = init


def _of_console(console: ModuleType) -> None:
    complain, answer_json = console.complain, console.answer_json

    def complained(error: Any) -> None:
        if error.hint:
            record("shown", getattr(error, "hint_places", []), str(error.hint))
        complain(error)

    def answered(answer: Any) -> None:
        kind = type(answer).__name__
        _answers[kind] += 1
        if _answers[kind] <= ANSWERS_AT_MOST:
            line = {"of": kind, "text": json.dumps(console.document(answer))}
            append(line | {"test": os.environ.get("PYTEST_CURRENT_TEST", "")}, ANSWERS_FILE)
        answer_json(answer)

    console.complain, console.answer_json = complained, answered


_WRAPS = {
    "errors": _of_errors,
    "reports": lambda module: _of_fixes(module.Check),
    "cutover": lambda module: _of_fixes(module.Gate),
    "console": _of_console,
}


def places(frame: FrameType | None, error: object) -> list[Place]:
    """The calls of the product that led to this error, innermost first: [file, line, column], as `ast` counts."""
    found: list[Place] = []
    while frame is not None and len(found) < SITES_AT_MOST:
        code = frame.f_code
        inner = code.co_name == "__init__" and frame.f_locals.get("self") is error
        if code.co_filename.startswith(PRODUCT) and not inner:
            at = next(islice(code.co_positions(), frame.f_lasti // 2, None), (frame.f_lineno, None, 0, None))
            found.append([code.co_filename.removeprefix(ROOT), at[0], at[2]])
        frame = frame.f_back
    return found


def record(what: str, at: list[Place], text: str) -> None:
    if at:
        latest[text] = at
    where = json.dumps(at[:1])
    if (where + what, text) in _written or _texts[where + what] >= TEXTS_AT_MOST:
        return
    _written.add((where + what, text))
    _texts[where + what] += 1
    append({"what": what, "at": at, "text": text, "test": os.environ.get("PYTEST_CURRENT_TEST", "")})


def append(line: dict[str, Any], beside: str = "") -> None:
    file = os.environ.get("BACKFILL_HINTS")
    if file:
        file += beside
        written = json.dumps(line).encode() + b"\n"
        # A test that lets its disk be full must see what the product does.
        with (
            suppress(OSError),
            os.fdopen(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666), "wb", buffering=0) as log,
        ):
            log.write(written)
