"""A process that has what the Connect client needs, as a user has after `pip install 'backfill-cli[connect]'`."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hint_typed import typed
from server_process import free_port

from backfill_cli.errors import BackfillError, Transient, UsageError
from backfill_cli.spark.session import open_session

sys.meta_path[:] = [one for one in sys.meta_path if getattr(one, "__name__", "") != "NoPandas"]


@contextmanager
def served(port: int) -> Iterator[None]:
    """A Connect server that knows sessions and their settings, and no more."""
    import grpc
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    class Server(base_pb2_grpc.SparkConnectServiceServicer):
        def Config(self, request: Any, _: object) -> Any:
            return base_pb2.ConfigResponse(session_id=request.session_id, server_side_session_id="1")

        def ReleaseSession(self, request: Any, _: object) -> Any:
            return base_pb2.ReleaseSessionResponse(session_id=request.session_id, server_side_session_id="1")

    server = grpc.server(ThreadPoolExecutor(1))
    base_pb2_grpc.add_SparkConnectServiceServicer_to_server(Server(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    yield
    server.stop(None)


def refused(remote: str, kind: type[BackfillError]) -> BackfillError:
    with pytest.raises(kind) as caught:
        open_session("local[1]", {}, remote=remote)
    return caught.value


def main() -> None:
    here = f"127.0.0.1:{free_port()}"
    no_address = refused(f"http://{here}", UsageError)
    with typed(no_address) as address:
        remote = str(address.settings()["spark.remote"]).replace("host:15002", here)
        silent = refused(remote, Transient)
        with typed(silent) as started, served(int(here.rpartition(":")[2])):
            started.says("start it")
            spark = open_session("local[1]", {}, remote=remote)
            print(type(spark).__module__)
            spark.stop()


if __name__ == "__main__":
    main()
