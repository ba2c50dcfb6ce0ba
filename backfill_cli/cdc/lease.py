"""What holds a log for one job: it costs the log's owner space, and is given up beyond a limit."""

from abc import abstractmethod

from backfill_cli.cdc.source import place_of
from backfill_cli.contracts import Lease
from backfill_cli.errors import START_OVER, HistoryGone
from backfill_cli.model.position import Position
from backfill_cli.model.units import spell_size
from backfill_cli.model.upstream import Pin


class LogLease(Lease):
    """What a database adds: the methods of the first part, and what `contracts.Lease` shows people.

    called: what is held, for people. limit_bytes: the most log that it may hold back; None for no limit.
    """

    def __init__(self, called: str, limit_bytes: int | None) -> None:
        self._called, self._limit_bytes = called, limit_bytes
        self._made = False  # by this process: no mark is needed to know it

    # -- what a database adds

    @abstractmethod
    def _require_same(self, pin: Pin) -> None:
        """Raise StateConflict if the options lead to another system than the pin's."""

    @abstractmethod
    def _make(self, mark: str) -> None:
        """Make the object under the mark; what an attempt whose answer was lost left of both is removed first."""

    @abstractmethod
    def _unmark(self, mark: str) -> None:
        """Remove the mark; the object stays."""

    @abstractmethod
    def _sweep(self, mark: str) -> None:
        """Remove the mark, and the object if it is the mark's."""

    @abstractmethod
    def _remove(self) -> None:
        """Remove the object if it exists. Raises Transient while it is used, StateConflict if it is not ours."""

    @abstractmethod
    def _require_free(self) -> None:
        """Raise Transient while the object is used."""

    @abstractmethod
    def _held_bytes(self, at: int) -> int:
        """How much log it holds back. Raises HistoryGone unless it holds all that follows the position."""

    # -- what all share

    def create(self, mark: str) -> None:
        self._make(mark)
        self._made = True

    def adopt(self, mark: str, pin: Pin) -> None:
        self._require_same(pin)
        self._unmark(mark)

    def clean_up(self, mark: str, pin: Pin) -> None:
        self._require_same(pin)
        if self._made:
            self._remove()
        self._sweep(mark)

    def release(self, pin: Pin) -> None:
        self._require_same(pin)
        self._remove()

    def require_releasable(self, pin: Pin) -> None:
        self._require_same(pin)
        self._require_free()

    def enforce_limit(self, position: Position, snapshot_open: bool) -> None:
        most, at = self._limit_bytes, place_of(position)
        if most is None or (size := self._held_bytes(at)) <= most:
            return
        self._remove()
        raise HistoryGone(
            f"{self._called} held back {spell_size(size)} of log, more than upstream.max_retained "
            f"({spell_size(most)}), and was dropped at {self._place(at)}: a new snapshot is needed",
            START_OVER,
        )

    def _place(self, at: int) -> str:
        """A position as the database writes it."""
        return str(at)
