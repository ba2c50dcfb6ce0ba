"""`python -m backfill_cli.manual FOLDER` writes what an installation has; FILE.md, the page of all commands."""

import sys
from pathlib import Path

from backfill_cli.manual.files import pages, shared
from backfill_cli.manual.markdown import commands_page

target = Path(sys.argv[1])
if target.suffix == ".md":
    target.write_text(commands_page(pages()), "utf-8")
else:
    for name, text in shared().items():
        file = target / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
