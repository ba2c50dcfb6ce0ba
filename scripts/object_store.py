"""An S3 on loopback, for tests: moto's server in one process, its objects in memory.

python scripts/object_store.py --port 9000 --bucket lake
"""

import argparse
import contextlib
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from server_process import free_port

PYTHON = Path(__file__).parents[1] / ".venv-store" / "bin" / "python"
"""Of the environment that scripts/setup makes for it."""
START_LIMIT_S = 180.0
"""A start takes 2 s here, and more on a busy machine."""


class NoObjectStore(Exception):
    """Why none can run here; the text ends with what to do."""


class ObjectStore:
    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """What finds the store, for any client."""
        return {
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        """The store answers, and is empty. Raises NoObjectStore."""
        if not PYTHON.exists():
            raise NoObjectStore("no moto: . scripts/setup dev; setup_store")
        # A pipe that we hold open: the server ends with it, so it never outlives us, not even after kill -9.
        serve = (
            "import os, sys, threading;"
            "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start();"
            "from moto.server import main; main(sys.argv[1:])"
        )
        self._process = subprocess.Popen(
            [str(PYTHON), "-c", serve, "-H", "127.0.0.1", "-p", str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        until = time.monotonic() + START_LIMIT_S
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                self.stop()
                raise NoObjectStore(f"moto's server did not start on {self.endpoint}: try {PYTHON} -m moto.server")
            time.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(30)
            self._process = None

    def create(self, bucket: str) -> None:
        with self._asked(f"/{bucket}", "PUT"):
            return

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), self._asked("/moto-api/data.json", "GET"):
            return True
        return False

    def _asked(self, path: str, method: str) -> "contextlib.AbstractContextManager[object]":
        signed = {"Authorization": "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"}
        request = urllib.request.Request(self.endpoint + path, method=method, headers=signed)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        answer: contextlib.AbstractContextManager[object] = opener.open(request, timeout=10)
        return answer


@contextmanager
def running(port: int | None = None) -> Iterator[ObjectStore]:
    store = ObjectStore(port)
    store.start()
    try:
        yield store
    finally:
        store.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--bucket", action="append", default=[], help="a bucket to create; repeatable")
    told = parser.parse_args()
    try:
        with running(told.port) as store:
            for bucket in told.bucket:
                store.create(bucket)
            for name, value in store.environment.items():
                print(f"export {name}={value}")
            print("Ctrl-C ends it", flush=True)
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    except NoObjectStore as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
