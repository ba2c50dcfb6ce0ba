"""A system with its own clock, which `doctor` compares with this machine's."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class Clocked(Protocol):
    """An upstream or a sink whose system tells the time of day."""

    def clock_ms(self) -> int:
        """The system's current time, in milliseconds since 1970. Raises what any call that connects raises."""
        ...
