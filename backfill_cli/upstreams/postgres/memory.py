"""What the upstream must remember with a position; it is kept with each checkpoint."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Known:
    """What is known at a position.

    hidden: transactions that were taken and that no snapshot shows yet. read: whether a chunk was read. columns:
    by table, the names of those in force. storage: how the tables were stored at the last look, as text.
    """

    hidden: tuple[int, ...] = ()
    read: bool = False
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    storage: str = ""


class Memory:
    """What is known at the begin and the end of the last window, by LSN: a window may be taken again."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}

    def at(self, lsn: int) -> Known:
        return self._known.get(lsn, Known())

    @property
    def newest(self) -> Known:
        return self._known[max(self._known)] if self._known else Known()

    def keep(self, after: int, up_to: int, known: Known) -> None:
        """The window (after, up_to] was taken. known: what is known at its end."""
        self._known = {after: self.at(after), up_to: known}

    def text(self, lsn: int) -> str:
        """JSON, for `recall` in another process."""
        return json.dumps({"at": lsn, **asdict(self.at(lsn))})

    def recall(self, text: str) -> Known:
        told = json.loads(text)
        known = Known(tuple(told["hidden"]), told["read"], told["columns"], told["storage"])
        self._known = {told["at"]: known}
        return known
