"""The files of the wheel beside its packages: man pages and completions, made of the help that was just built."""

import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup


class Manual(Command):
    """Stands for `install_data`: where that would copy files, these are written."""

    user_options: ClassVar[list[tuple[str, str, str]]] = []

    def initialize_options(self) -> None:
        self.install_dir: str | None = None

    def finalize_options(self) -> None:
        self.set_undefined_options("install", ("install_data", "install_dir"))

    def run(self) -> None:
        built = str(Path(self.get_finalized_command("build").build_lib).absolute())
        path = os.pathsep.join(filter(None, (built, os.environ.get("PYTHONPATH"))))
        # -B: a second build would take the compiled files of this one for modules.
        words = [sys.executable, "-B", "-m", "backfill_cli.manual", str(Path(str(self.install_dir)).absolute())]
        subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, cwd=built, check=True)

    def get_outputs(self) -> list[str]:
        return []


setup(cmdclass={"install_data": Manual}, data_files=[("share", [])])
