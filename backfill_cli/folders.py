"""Which folder a config belongs to: that of its relative paths, and of its catalog if none is named."""

import os
from pathlib import Path


def folder_of(config: Path) -> Path:
    """The folder that a config belongs to: its own, by the name that was given; for a pipe, the current one."""
    if os.path.exists(config) and not os.path.isfile(config):
        return Path.cwd()
    folder = config.absolute().parent
    return folder.resolve() if ".." in folder.parts else folder
