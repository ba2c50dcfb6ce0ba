"""A circuit breaker: whether reads may expect plain records alone."""

from dataclasses import dataclass


@dataclass
class CircuitBreaker:
    """Closed: plain records are expected. Open after a record that was not: for 8 reads, twice as many each time.

    waits: reads until it closes again. penalty: reads that the next trip opens it for, 1,024 at most.
    """

    waits: int = 0
    penalty: int = 8

    def closed(self) -> bool:
        """Asked once per read."""
        if self.waits:
            self.waits -= 1
            return False
        return True

    def trip(self) -> None:
        self.waits, self.penalty = self.penalty, min(2 * self.penalty, 1024)
