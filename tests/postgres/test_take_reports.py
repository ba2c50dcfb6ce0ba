"""What others reported of logs of PostgreSQL: messages, COPY, transactions that overlap. Windows end anywhere."""

import psycopg
from log_world import World
from taken_world import shared, world

from backfill_cli.upstreams.postgres.client import lsn_of

__all__ = ["shared", "world"]


def in_windows(world: World, begun: int, steps: int = 7) -> None:
    """The log from `begun` to its end in windows whose ends fall inside transactions, each acknowledged."""
    end = world.now()
    for step in range(1, steps + 1):
        world.follow(begun + (end - begun) * step // steps)
        world.db(f"SELECT pg_replication_slot_advance('{world.slot}', '{spelled(world.position)}')")
    world.follow()


def spelled(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def test_case_66_changes_after_a_message_of_their_transaction_are_taken_wherever_a_window_ends(
    world: World,
) -> None:
    begun = world.now()
    for first in (1, 101, 201):
        with psycopg.connect(world.db.dsn) as connection:
            connection.execute("INSERT INTO part (id) SELECT generate_series(%s::int, %s)", (first, first + 49))
            connection.execute("SELECT pg_logical_emit_message(true, 'app', 'text')")
            connection.execute("UPDATE part SET v = 1 WHERE id % 2 = 0")
            connection.execute("SELECT pg_logical_emit_message(true, 'app', '')")
            connection.execute(
                "INSERT INTO part (id) SELECT generate_series(%s::int, %s)", (first + 50, first + 60)
            )
    in_windows(world, begun)
    assert world.sink == world.state()
    assert len(world.sink["part"]) == 3 * 61


def test_case_67_rows_of_a_copy_are_taken_once_each_wherever_a_window_ends(world: World) -> None:
    begun = world.now()
    for first in (0, 1000):
        with (
            psycopg.connect(world.db.dsn) as connection,
            connection.cursor().copy("COPY part (id, v) FROM STDIN") as copy,
        ):
            for id in range(first, first + 1000):
                copy.write_row((id, id))
    in_windows(world, begun)
    assert world.sink == world.state()
    assert len(world.sink["part"]) == 2000


def test_case_68_a_transaction_that_was_open_while_a_later_one_was_acknowledged_is_taken(world: World) -> None:
    with psycopg.connect(world.db.dsn) as early, psycopg.connect(world.db.dsn) as middle:
        early.execute("INSERT INTO part (id) VALUES (1)")
        middle.execute("INSERT INTO part (id) VALUES (2)")
        for id in (3, 4):
            world.db(f"INSERT INTO part (id) VALUES ({id})")
            world.follow()
            world.db(f"SELECT pg_replication_slot_advance('{world.slot}', '{spelled(world.position)}')")
            assert {key for (key,) in world.sink["part"]} == {str(seen) for seen in range(3, id + 1)}
        middle.commit()
        world.follow()
        world.db(f"SELECT pg_replication_slot_advance('{world.slot}', '{spelled(world.position)}')")
        early.execute("UPDATE part SET v = 7 WHERE id = 1")
        early.commit()
    ((restart,),) = world.db(
        f"SELECT restart_lsn::text FROM pg_replication_slots WHERE slot_name = '{world.slot}'"
    )
    assert lsn_of(restart) < world.position  # the server itself keeps what the open one needs
    world.follow()
    assert world.sink == world.state()
    assert {key for (key,) in world.sink["part"]} == {"1", "2", "3", "4"}
