"""Creates a small shop in PostgreSQL, then writes to it until Ctrl-C. A demo for scripts/postgres.

.venv/bin/python scripts/demo_postgres.py --orders 200000 --rate 200
"""

import argparse
import random
import sys
import time
from typing import Any

import psycopg

TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, email text, since date NOT NULL)",
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer_id int NOT NULL REFERENCES customers, "
    "status text NOT NULL, total numeric(10,2) NOT NULL, at timestamptz NOT NULL DEFAULT now())",
    "CREATE TABLE order_lines (order_id bigint REFERENCES orders ON DELETE CASCADE, line int, sku text NOT NULL, "
    "price numeric(10,2) NOT NULL, PRIMARY KEY (order_id, line))",
)
ROWS = (
    "INSERT INTO customers SELECT n, 'customer ' || n, 'c' || n || '@example.org', date '2020-01-01' + n %% 2000 "
    "FROM generate_series(1, %(customers)s) n",
    "INSERT INTO orders SELECT n, 1 + n %% %(customers)s, 'paid', 20, now() FROM generate_series(1, %(orders)s) n",
    "INSERT INTO order_lines SELECT n, l, 'sku-' || l, 10 FROM generate_series(1, %(orders)s) n, "
    "generate_series(1, 2) l",
    "ANALYZE",
)


def made(connection: "psycopg.Connection[Any]", orders: int) -> None:
    """The shop exists; the sum of an order's lines always equals its total."""
    for statement in TABLES:
        connection.execute(statement.encode())
    for statement in ROWS:
        told = {"customers": max(1, orders // 20), "orders": orders}
        connection.execute(statement.encode(), told if "%(" in statement else None)


def write(connection: "psycopg.Connection[Any]", number: int, orders: int) -> None:
    """One transaction: a new order with its lines, a deleted order, or a line with a new price."""
    with connection.transaction():
        at = random.randint(1, orders)
        if number % 3 == 0:
            customer = "(SELECT id FROM customers ORDER BY id LIMIT 1)"
            connection.execute(
                f"INSERT INTO orders VALUES (%s, {customer}, 'new', 20)".encode(), (orders + number,)
            )
            lines = "INSERT INTO order_lines SELECT %s, l, 'sku-' || l, 10 FROM generate_series(1, 2) l"
            connection.execute(lines, (orders + number,))
        elif number % 3 == 1:
            connection.execute("DELETE FROM orders WHERE id = %s", (at,))
        else:
            line = "UPDATE order_lines SET price = price + 1 WHERE order_id = %s AND line = 1"
            connection.execute(line, (at,))
            connection.execute(
                "UPDATE orders SET total = (SELECT sum(price) FROM order_lines WHERE order_id = id) "
                "WHERE id = %s AND EXISTS (SELECT FROM order_lines WHERE order_id = orders.id)",
                (at,),
            )


def main() -> int:
    parser = argparse.ArgumentParser(description="A small shop in PostgreSQL, written to until Ctrl-C.")
    parser.add_argument("--dsn", default="postgresql://postgres@127.0.0.1:5433/postgres", help="the database")
    parser.add_argument("--orders", type=int, default=200_000, help="orders written at the start (default 200000)")
    parser.add_argument(
        "--rate", type=int, default=200, help="transactions per second after that; 0 for none (default 200)"
    )
    told = parser.parse_args()
    try:
        with psycopg.connect(told.dsn, autocommit=True) as connection:
            made(connection, told.orders)
            print(f"{told.orders} orders written; now {told.rate} transactions per second", file=sys.stderr)
            began_s, number = time.monotonic(), 1
            while told.rate:
                write(connection, number, told.orders)
                number += 1
                time.sleep(max(0.0, began_s + number / told.rate - time.monotonic()))
    except KeyboardInterrupt:
        return 0
    except psycopg.Error as error:
        print(f"error: {str(error).splitlines()[0]}\nTry: scripts/postgres --port 5433", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
