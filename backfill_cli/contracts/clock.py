"""A system that has a clock of its own: `doctor` compares it with this machine's."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Clocked(Protocol):
    """An upstream or a sink whose system tells the time of day."""

    def clock_ms(self) -> int:
        """Milliseconds since 1970, there, now. Raises as everything does that connects."""
        ...
