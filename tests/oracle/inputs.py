"""Inputs, and how Hypothesis draws many of them at once.

A batch of inputs shares a Spark job, so Hypothesis draws first and the batch runs afterwards; an input that
fails is found again by its place in the same sequence and made smaller there, alone.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from oracle.answer import Answer

KEYS = 1000
"""Keys that one input of a batch may use: from `number * KEYS` on."""

SEED = int(os.environ.get("BACKFILL_ORACLE_SEED", "8"))
TIMES = float(os.environ.get("BACKFILL_ORACLE_TIMES", "1"))
SMALLER_S = 20.0
"""How long a failing input is made smaller."""

Files = Mapping[str, bytes]


class Input(ABC):
    """One generated upstream. Immutable; its repr is what a finding prints."""

    form: ClassVar[str]

    @property
    @abstractmethod
    def options(self) -> Mapping[str, Any]:
        """`upstream` and, where there is one, `transform` of the config; inputs with equal ones may share a job.

        Paths are relative to the folder that `files` are written to.
        """

    @abstractmethod
    def files(self, number: int) -> Files:
        """Path → content. Every path is this input's own."""

    @abstractmethod
    def answer(self, number: int) -> Answer:
        """What the reference reader makes of `files(number)`."""

    @classmethod
    def write(cls, folder: Path, inputs: "Sequence[Input]") -> None:
        """The inputs of one job are there, each with its number: from 1 on, in order."""
        for number, one in enumerate(inputs, 1):
            for path, content in one.files(number).items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The types (or features) that it is about: rows of docs/types.md."""
        return ()

    @property
    def group(self) -> str:
        """Inputs of one group may share a job."""
        return repr(self.options)

    @property
    def size(self) -> int:
        """How many inputs it counts as: generated columns of values in a file of many."""
        return 1

    @property
    def alone(self) -> bool:
        """Whether it may not share a job: its answer would be another beside others."""
        return False


@dataclass(frozen=True)
class Drawn:
    """An input, and how to draw it again: the strategy's `place`-th with SEED; none for one written by hand."""

    input: Input
    strategy: "SearchStrategy[Any] | None" = None
    count: int = 0
    place: int = 0


Of = TypeVar("Of", bound=Input)


def generated(strategy: "SearchStrategy[Any]", count: int) -> list[Drawn]:
    """`count` inputs (times BACKFILL_ORACLE_TIMES), the same ones for the same seed."""
    wanted = max(1, int(count * TIMES))
    found: list[Input] = []

    @_quiet(wanted, (Phase.generate,))
    @given(strategy)
    def draw(one: Input) -> None:
        found.append(one)

    draw()
    return [Drawn(one, strategy, wanted, place) for place, one in enumerate(found[:wanted])]


def written(examples: Iterable[Input]) -> list[Drawn]:
    """Inputs written by hand."""
    return [Drawn(one) for one in examples]


def smaller(drawn: Drawn, fails: Callable[[Input], bool]) -> Input:
    """An input that fails too, as small as a minute of looking makes it."""
    if drawn.strategy is None:
        return drawn.input
    place, until = -1, time.monotonic() + SMALLER_S
    last = drawn.input

    @_quiet(drawn.count, (Phase.generate, Phase.shrink))
    @given(drawn.strategy)
    def draw(one: Input) -> None:
        nonlocal place, last
        place += 1
        if place < drawn.place or time.monotonic() > until:
            return
        if fails(one):
            last = one
            raise _Fails

    try:
        draw()
    except BaseException as exc:
        if not isinstance(exc, (_Fails, BaseExceptionGroup)) and "Flaky" not in type(exc).__name__:
            raise
    return last


class _Fails(Exception):
    pass


def _quiet(count: int, phases: tuple[Phase, ...]) -> Callable[[Any], Any]:
    def settled(test: Any) -> Any:
        told = settings(
            max_examples=count,
            phases=phases,
            database=None,
            deadline=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
        )
        return seed(SEED)(told(test))

    return settled
