"""`python -m backfill_cli.manual FOLDER` writes what an installation has in that folder."""

import sys
from pathlib import Path

from backfill_cli.manual.files import shared

for name, text in shared().items():
    file = Path(sys.argv[1]) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
