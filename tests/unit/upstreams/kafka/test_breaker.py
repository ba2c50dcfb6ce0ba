"""When a read may expect plain records alone."""

from backfill_cli.upstreams.kafka.log.breaker import CircuitBreaker


def test_a_breaker_that_trips_stays_open_for_a_while_and_twice_as_long_each_time() -> None:
    breaker = CircuitBreaker()
    assert breaker.closed()
    for reads in (8, 16, 32):
        breaker.trip()
        assert [breaker.closed() for _ in range(reads + 1)] == [False] * reads + [True]
