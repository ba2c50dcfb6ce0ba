"""Single values drawn many at once, the same ones in every run."""

from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

from oracle.inputs import SEED, TIMES

Of = TypeVar("Of")


def drawn(strategy: SearchStrategy[Of], count: int) -> list[Of]:
    wanted = max(1, int(count * TIMES))
    found: list[Of] = []

    @seed(SEED)
    @settings(
        max_examples=wanted,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(one: Of) -> None:
        found.append(one)

    draw()
    return found[:wanted]
