"""What the upstream has to know again beside a position, kept with each checkpoint."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Known:
    """What is known beside a position.

    hidden: transactions taken, shown by no snapshot yet. read: whether a chunk was. columns: names, by table, of
    those in force. storage: of the tables when they were last looked at, as text.
    """

    hidden: tuple[int, ...] = ()
    read: bool = False
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    storage: str = ""


class Memory:
    """By position (LSN): of the window taken last, its begin and its end; a window may be taken again."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}

    def at(self, lsn: int) -> Known:
        return self._known.get(lsn, Known())

    @property
    def newest(self) -> Known:
        return self._known[max(self._known)] if self._known else Known()

    def keep(self, after: int, up_to: int, known: Known) -> None:
        """The window (after, up_to] was taken; known: at its end."""
        self._known = {after: self.at(after), up_to: known}

    def text(self, lsn: int) -> str:
        """JSON, for `recall` in another process."""
        return json.dumps({"at": lsn, **asdict(self.at(lsn))})

    def recall(self, text: str) -> Known:
        told = json.loads(text)
        known = Known(tuple(told["hidden"]), told["read"], told["columns"], told["storage"])
        self._known = {told["at"]: known}
        return known
