"""A circuit breaker: whether reads may expect only plain records."""

from dataclasses import dataclass


@dataclass
class CircuitBreaker:
    """Closed: plain records are expected. Open after a record that was not plain: for 8 reads, doubled each time.

    waits: reads until it closes again. penalty: for how many reads the next trip opens it, at most 1,024.
    """

    waits: int = 0
    penalty: int = 8

    def closed(self) -> bool:
        """Whether it is closed; called once per read."""
        if self.waits:
            self.waits -= 1
            return False
        return True

    def trip(self) -> None:
        self.waits, self.penalty = self.penalty, min(2 * self.penalty, 1024)
