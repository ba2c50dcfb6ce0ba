"""Pieces in parts: each once, in order, and so that no core waits for a part that could have been two."""

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import Piece
from backfill_cli.upstreams.formats.arrow_tasks import PART_ROWS, packed


@given(st.lists(st.integers(0, 2 * PART_ROWS), max_size=60), st.integers(1, 8))
def test_every_piece_is_in_one_part_and_no_part_is_larger_than_it_must(rows: list[int], cores: int) -> None:
    pieces = [(Piece(read, f"p{read}"), count) for read, count in enumerate(rows)]
    parts = packed(pieces, cores)
    assert [piece for part in parts for piece in part] == [piece for piece, _ in pieces]
    most = min(PART_ROWS, -(-sum(rows) // cores)) or 1
    for part in parts:
        held = [rows[piece.read] for piece in part]
        assert sum(held) <= most or len(held) == 1


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 8))
def test_many_small_pieces_are_few_parts(rows: list[int], cores: int) -> None:
    parts = packed([(Piece(read, None), count) for read, count in enumerate(rows)], cores)
    assert len(parts) <= 2 * cores + 1
