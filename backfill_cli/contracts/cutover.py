"""A sink that can give the job's table the name that people query: asked by `backfill cutover` alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from backfill_cli.contracts.sink import Sink, SinkTable
from backfill_cli.model.cutover import Lives


@dataclass(frozen=True, slots=True)
class Swap:
    """live: the name that people query, as the config has it: `schema.name`, or a name."""

    table: SinkTable
    live: str


@runtime_checkable
class CutoverSink(Sink, Protocol):
    """A sink with views, which it makes and renames in one transaction; or one whose tables have branches.

    in_place: the table itself is what people query, the job fills a branch of it, and one table is cut over after
    the other, each at one moment. The caller has the job to itself then, and the sink fenced.
    """

    @property
    def in_place(self) -> bool: ...

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        """What these names are now. Changes nothing. Raises UsageError for a name that cannot be one."""
        ...

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        """Each name is a view of its job's table, all from one moment on; what was there is kept under another.

        A name that is one already stays. The job goes on writing into its table, whose new columns the view gets.
        Raises UsageError naming what cannot be renamed or made, Transient while somebody holds it; nothing has
        changed then.
        """
        ...

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        """Each name is again what it was before `cut_over`, all from one moment on. Raises as that does."""
        ...


@runtime_checkable
class NamelessSink(Sink, Protocol):
    """A sink that could not make or rename a name in one act: those are in a catalog that people use."""

    def statements(self, swaps: Sequence[Swap], epoch: int) -> Sequence[str]:
        """What is to be run there, in this order, once every gate is open."""
        ...
