"""When a read may expect plain records alone."""

from backfill_cli.upstreams.kafka.upstream import Haste


def test_after_a_surprise_reads_go_with_care_for_a_while_and_longer_each_time() -> None:
    haste = Haste()
    assert haste.allowed()
    for careful in (8, 16, 32):
        haste.surprised()
        assert [haste.allowed() for _ in range(careful + 1)] == [False] * careful + [True]
