"""When a read may expect plain records alone."""

from backfill_cli.upstreams.kafka.upstream import Haste


def test_after_a_surprise_reads_go_with_care_for_a_while_and_longer_each_time() -> None:
    haste = Haste()
    assert haste.allowed(mixed=False)
    for careful in (8, 16, 32):
        haste.surprised()
        assert [haste.allowed(mixed=False) for _ in range(careful + 1)] == [False] * careful + [True]


def test_records_of_an_archive_beside_those_of_the_log_are_never_read_in_haste() -> None:
    assert not Haste().allowed(mixed=True)
