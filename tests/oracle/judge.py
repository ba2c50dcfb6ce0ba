"""Inputs through a route, compared with what the reader answers; what differs is a finding."""

import re
import shutil
import tempfile
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backfill_cli.errors import BackfillError
from oracle import plain
from oracle.answer import Refused, Rows
from oracle.inputs import Drawn, Input, smaller
from oracle.routes import Batch, Route

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FINDINGS = 5
"""After so many a route is left alone: they are mostly one fault, and each is made smaller."""


@dataclass(frozen=True)
class Loaded:
    types: tuple[tuple[str, str], ...]
    rows: tuple[plain.Row, ...]


@dataclass(frozen=True)
class Said:
    """The product refused, with these words."""

    words: str


@dataclass(frozen=True)
class Broke:
    """The product ended with an error that is none of its own."""

    trace: str


@dataclass(frozen=True)
class Finding:
    route: str
    input: Input
    what: str

    def __str__(self) -> str:
        files = "\n".join(f"  {path}: {content[:400]!r}" for path, content in self.input.files(1).items())
        return f"{self.route}: {self.what}\n{self.input!r}\noptions {dict(self.input.options)}\n{files}"


@dataclass
class Measured:
    """What a route did with inputs. exact, refused: by kind (Input.kinds); reasons: by kind, why refused.

    By kind only inputs written by hand count: what Hypothesis draws changes with its version and with the code
    that it sees, and docs/types.md must not.
    """

    inputs: int = 0
    exact: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    findings: list[Finding] = field(default_factory=list)

    def note(self, one: Drawn, said: bool, why: str = "") -> None:
        self.inputs += one.input.size
        for kind in one.input.kinds if one.strategy is None else ():
            (self.refused if said else self.exact)[kind] += 1
            if said:
                self.reasons[kind].add(why)


def judge(route: Route, drawn: Sequence[Drawn], spark: "SparkSession") -> Measured:
    """Each input through the route: those with rows together, those that may be refused each alone."""
    measured = Measured()
    shared: dict[str, list[Drawn]] = defaultdict(list)
    single: dict[str, list[Drawn]] = defaultdict(list)
    for one in drawn:
        answer = one.input.answer(1)
        if isinstance(answer, Rows) and not answer.or_refused and not one.input.alone:
            shared[one.input.group].append(one)
        else:
            why = answer.why if isinstance(answer, Refused) else answer.or_refused
            single[repr(one.input.kinds) + re.sub(r"'.*'|\d", "", why)].append(one)
    for group in shared.values():
        for start in range(0, len(group), route.together):
            _together(route, group[start : start + route.together], spark, measured)
    alone = list(islice(_in_turn(single.values()), route.refusals))
    with ThreadPoolExecutor(route.at_once) as pool:
        told = list(pool.map(lambda one: verdict(route, one.input, spark), alone))
    # once all are done: a route may change the product for as long as it runs, and a finding runs it again
    for one, of_it in zip(alone, told, strict=True):
        _noted(route, one, of_it, spark, measured)
    return measured


def _in_turn(groups: Iterable[Sequence[Drawn]]) -> Iterator[Drawn]:
    """Those written by hand, then the first of each group, the second of each, and so on."""
    groups = list(groups)
    yield from (one for group in groups for one in group if one.strategy is None)
    drawn = [[one for one in group if one.strategy is not None] for group in groups]
    yield from (one for turn in zip_longest(*drawn) for one in turn if one is not None)


def _together(route: Route, group: Sequence[Drawn], spark: "SparkSession", measured: Measured) -> None:
    """All of a group's rows are there and no others; else its halves, until one stands alone."""
    if len(measured.findings) >= FINDINGS:
        return
    if len(group) == 1:
        _noted(route, group[0], verdict(route, group[0].input, spark), spark, measured)
        return
    got = outcome(route, [one.input for one in group], spark)
    wanted = [route.held.kept(one.input.answer(number)) for number, one in enumerate(group, 1)]
    rows = [row for answer in wanted if isinstance(answer, Rows) for row in answer.rows]
    types = next((answer.types for answer in wanted if isinstance(answer, Rows)), None)
    if _difference(Rows(tuple(rows), types), got) is None:
        for one in group:
            measured.note(one, said=False)
        return
    before = len(measured.findings)
    half = len(group) // 2
    for part in (group[:half], group[half:]):
        _together(route, part, spark, measured)
    if len(measured.findings) == before:
        what = f"{len(group)} inputs differ together, none alone: {_difference(Rows(tuple(rows), types), got)}"
        measured.findings.append(Finding(route.name, group[0].input, what))


def _noted(
    route: Route, one: Drawn, told: tuple[str | None, str | None], spark: "SparkSession", measured: Measured
) -> None:
    """told: the verdict on it; a fault becomes a finding, as small as it can be made, until there are FINDINGS."""
    what, said = told
    if what is None:
        measured.note(one, said is not None, said or "")
        return
    if len(measured.findings) >= FINDINGS:
        return
    less = smaller(one, lambda other: verdict(route, other, spark)[0] is not None)
    measured.findings.append(Finding(route.name, less, verdict(route, less, spark)[0] or what))


def verdict(route: Route, input: Input, spark: "SparkSession") -> tuple[str | None, str | None]:
    """What is wrong with one input, None if nothing; why the product rightly refused, None if it did not."""
    got, answer = outcome(route, [input], spark), route.held.kept(input.answer(1))
    if isinstance(answer, Rows):
        if answer.or_refused and isinstance(got, Said):
            return None, answer.or_refused
        return _difference(answer, got), None
    if isinstance(got, Said):
        lacking = [name for name in answer.names if name not in got.words]
        return (f"the refusal does not name {lacking}: {got.words}" if lacking else None), answer.why
    if isinstance(got, Broke):
        return f"must be refused ({answer.why}), ended with a traceback:\n{got.trace}", None
    return f"must be refused ({answer.why}), loaded {list(got.rows)}", None


def _difference(wanted: Rows, got: Loaded | Said | Broke) -> str | None:
    if isinstance(got, Said):
        return f"refused though fine: {got.words}"
    if isinstance(got, Broke):
        return f"a traceback:\n{got.trace}"
    if wanted.types is not None:
        types = [(name, plain.type_name(kind)) for name, kind in wanted.types]
        if types != list(got.types):
            return (
                f"types {[t for t in got.types if t not in types]}, not {[t for t in types if t not in got.types]}"
            )
    here, there = Counter(map(_told, wanted.rows)), Counter(map(_told, got.rows))
    if here == there:
        return None
    lacking, more = list((here - there).elements()), list((there - here).elements())
    return f"{len(lacking)} rows lacking, {len(more)} that should not be\n  - " + "\n  + ".join(
        ["\n  - ".join(one[:600] for one in lacking[:3]), *(one[:600] for one in more[:3])]
    )


def _told(row: plain.Row) -> str:
    return repr(sorted(row.items()))


def outcome(route: Route, inputs: Iterable[Input], spark: "SparkSession") -> Loaded | Said | Broke:
    """What the route does with these inputs in one job."""
    with _written(list(inputs)) as batch:
        try:
            route.run(batch, spark)
        except BackfillError as exc:
            return Said(str(exc))
        except Exception:
            return Broke("".join(traceback.format_exc()[-3000:]))
        types, rows = route.held.read(batch)
        return Loaded(tuple(types.items()), tuple(rows))


@contextmanager
def _written(inputs: Sequence[Input]) -> Iterator[Batch]:
    folder = Path(tempfile.mkdtemp(prefix="oracle-"))
    try:
        type(inputs[0]).write(folder, inputs)
        yield Batch(folder, _config(folder, inputs[0].options))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _config(folder: Path, options: Any) -> dict[str, Any]:
    """A whole config: paths absolute, one table `t` with the key `id`, unless the options say otherwise."""

    def settled(name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: settled(key, inner) for key, inner in value.items()}
        return str(folder / value) if name in ("path", "table") else value

    return {
        "job": {"name": "oracle", "staging": str(folder / "staging")},
        "tables": [{"name": "t", "key": ["id"]}],
        "sink": {"type": "duckdb", "path": str(folder / "sink.duckdb")},
        **{key: settled(key, value) for key, value in options.items()},
    }
