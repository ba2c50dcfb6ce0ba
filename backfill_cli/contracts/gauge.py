"""What a guard asks: one number, of a connection of its own beside the job's."""

from typing import Protocol


class Unanswered(Exception):
    """Why there is no number now, in words without a secret. It ends no run, so it has no hint."""


class Gauge(Protocol):
    """Used by one thread, which calls it again and again; opened by the first call."""

    def ask(self) -> float:
        """The number now, within the time limit that it was made with. Raises Unanswered, or a
        BackfillError."""
        ...

    def close(self) -> None:
        """Its connection, if it has one, is closed."""
        ...
