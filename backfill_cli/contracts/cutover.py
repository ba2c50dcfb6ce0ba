"""A sink that can give the job's table the name that people query: used only by `backfill cutover`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from backfill_cli.contracts.sink import Sink, SinkTable
from backfill_cli.model.cutover import Lives

REPEAT = "correct what the message names, then repeat the command"
"""The hint where the sink's system refuses to rename or create something; nothing has changed."""


@dataclass(frozen=True, slots=True)
class Swap:
    """live: the name that people query, as in the config: `schema.name`, or a name."""

    table: SinkTable
    live: str


@runtime_checkable
class CutoverSink(Sink, Protocol):
    """A sink with views, which it creates and renames in one transaction, or one whose tables have branches.

    in_place: people query the table itself and the job fills a branch of it; tables are cut over one after the
    other, each atomically. The caller then holds the job exclusively and has fenced the sink.
    """

    @property
    def in_place(self) -> bool: ...

    def live(self, job: str, swaps: Sequence[Swap]) -> Lives:
        """What these names are now. Changes nothing. Raises UsageError for a name that cannot be used."""
        ...

    def cut_over(self, job: str, swaps: Sequence[Swap], epoch: int, now_ms: int, until_ms: int) -> None:
        """Each name is a view of its job's table, all switched atomically; what was there is kept under another.

        A name that already is such a view stays. The job keeps writing into its table, and the view gets new
        columns.
        Raises UsageError naming what cannot be renamed or created, Transient while another session locks it; in
        both cases nothing has changed.
        """
        ...

    def reverse(self, job: str, swaps: Sequence[Swap]) -> None:
        """Each name is what it was before `cut_over`, all switched atomically. Raises what `cut_over` does."""
        ...


@runtime_checkable
class NamelessSink(Sink, Protocol):
    """A sink that cannot create or rename a name atomically: the names are in a catalog that people maintain."""

    def statements(self, swaps: Sequence[Swap], epoch: int) -> Sequence[str]:
        """The statements to run there, in this order, once every gate is open."""
        ...
