"""Rows of jobs: the numbers of one are read without the codec, and as it reads them."""

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.catalog import job_rows
from backfill_cli.errors import Command, Foreign, Hint, StartOver
from backfill_cli.model.checkpoint import PartitionProgress, Progress, Written
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.committing import Committing
from backfill_cli.model.limit import Kind, Limit
from backfill_cli.model.upstream import SpoolView

COUNTS = st.dictionaries(st.text("abc ", max_size=3), st.integers(0), max_size=3)
TEXT = st.text("añ'\"", max_size=5)
COMMANDS = st.lists(TEXT).map(lambda words: Command(tuple(words)))
PARTS = st.lists(st.one_of(TEXT, COMMANDS, TEXT.map(Foreign), st.just(StartOver(None))), max_size=2).map(tuple)
LIMITS = st.builds(Limit, TEXT, st.sampled_from(Kind), st.builds(Hint, PARTS, st.booleans()))
TOLD = st.builds(
    Progress,
    splits=COUNTS,
    limited_by=LIMITS,
    waiting_for=st.none() | LIMITS,
    spool=st.none() | st.builds(SpoolView, waits=st.none() | LIMITS),
    rows_per_s=st.none() | st.floats(0),
    eta_s=st.none() | st.tuples(st.floats(0), st.floats(0)),
    share=st.none() | st.floats(0, 1),
    written_per_s=st.none() | st.builds(Written, st.floats(0), st.floats(0), st.floats(0)),
    committing=st.none() | st.from_type(Committing),
    uncomputed=st.none() | LIMITS,
    partitions=st.lists(st.from_type(PartitionProgress), max_size=2).map(tuple),
)


@given(TOLD)
def test_progress_is_read_as_the_codec_reads_it(told: Progress) -> None:
    newer = encode(told).replace("{", '{"field_of_a_newer_version": [1], ', 1)
    newer = newer.replace('{"partition"', '{"another": 1, "partition"')
    assert job_rows.read_progress(newer) == decode(Progress, newer) == told
