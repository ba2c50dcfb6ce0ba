"""How long a commit takes to keep each derived table."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class Took:
    """By the monotonic clock. A piece that raises counts, too."""

    def __init__(self) -> None:
        self._ns: dict[str, int] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """What the block takes is added to that of this derived table."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._ns[name] = self._ns.get(name, 0) + time.monotonic_ns() - began_ns

    @property
    def ms(self) -> Mapping[str, int]:
        return {name: ns // 1_000_000 for name, ns in self._ns.items()}
