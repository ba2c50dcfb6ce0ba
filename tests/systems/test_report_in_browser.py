"""The report of a real run in a real browser: what is laid out, what is drawn, and that nothing is asked for."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from typed import Place

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_S = 120.0
"""A page takes it 2 s here; a busy machine, and the first start of a browser, ten times that."""

BLUE = (0x2B, 0x6C, 0xB0)
"""Of the curve of snapshot rows, and of the bars of splits."""

NOTHING_FETCHED = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
WATCH = """<script>
window.seen = {faults: [], asked: []};
addEventListener("error", e => seen.faults.push(String(e.message)), true);
addEventListener("securitypolicyviolation", e => seen.asked.push(e.blockedURI));
</script>"""
LOOK = """<script>
addEventListener("load", () => {
  const size = e => { const b = e.getBoundingClientRect(); return [b.width, b.height]; };
  const all = (what, tell) => [...document.querySelectorAll(what)].map(tell);
  seen.asked.push(...performance.getEntriesByType("resource").map(e => e.name));
  seen.headings = all("h1, h2", e => [e.textContent, ...size(e)]);
  seen.pictures = all("figure svg", size);
  seen.labels = all("figure svg text", e => [e.textContent, ...size(e)]);
  seen.splits = all(".split b", size);
  seen.epochs = all("table tr", size);
  seen.wide = document.documentElement.scrollWidth - innerWidth;
  document.title = "looked at " + JSON.stringify(seen);
});
</script>"""
"""The page's own browser says it: sizes as laid out, in pixels."""


@pytest.fixture(scope="module")
def browser() -> str:
    """Where none is the test is skipped, in CI it fails."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    missing = f"no browser: none of {', '.join(BROWSERS)}\nTry: apt-get install chromium"
    return str((pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(missing))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a job that ran to its end, throttled meanwhile, as `backfill report` wrote it."""
    place = Place(tmp_path_factory.mktemp("report"))
    place.configured(("rate = 100", "rate = 2000"))
    with place.began("start", "--until", "caught-up") as runner:
        place.until(lambda job: job.get("rows_read", 0) > 0)
        assert place.typed("throttle", "--rate", "none").returncode == 0
        assert runner.wait(120) == 0, place.said
    assert place.typed("verify").returncode == 0
    written = place.typed("report", "--out", "report.html")
    assert written.returncode == 0, written.stderr
    return place.folder / "report.html"


def browsed(browser: str, page: Path, *words: str) -> str:
    """What a browser says of a page; it keeps nothing, and asks its maker for nothing."""
    quiet = ("--disable-background-networking", "--no-first-run", f"--user-data-dir={page.parent / 'profile'}")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", *quiet)
    command = [browser, *flags, "--window-size=1200,2400", *words, page.as_uri()]
    told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def looked(browser: str, page: Path, name: str = "looked.html") -> dict[str, Any]:
    """What the browser makes of the page. A copy says it: the page itself has no script."""
    allowed = f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_FETCHED}">'
    text = page.read_text("utf-8")
    copy = page.with_name(name)
    copy.write_text(
        text.replace("<head>", f"<head>{allowed}{WATCH}", 1).replace("</body>", f"{LOOK}</body>", 1), "utf-8"
    )
    told = re.search("<title>looked at (.*?)</title>", browsed(browser, copy, "--dump-dom"), re.DOTALL)
    assert told is not None
    return dict(json.loads(unescape(told[1])))


def test_every_section_is_laid_out_and_nothing_is_asked_for(browser: str, page: Path) -> None:
    seen = looked(browser, page)
    assert seen["asked"] == []
    assert seen["faults"] == []
    headings = {title: (width, height) for title, width, height in seen["headings"]}
    assert set(headings) == {"ordersdone", "Over time", "Splits", "The newest epochs", "Config"}
    assert all(width > 0 and height > 10 for width, height in headings.values())
    ((width, height),) = seen["pictures"]
    assert (width > 800, height > 500) == (True, True)
    labels = {text for text, wide, high in seen["labels"] if wide > 0 and high > 0}
    assert labels >= {"Read", "Lag", "per second", "snapshot rows", "changes", "throttle"}
    assert seen["splits"]
    assert all(wide > 20 and high > 2 for wide, high in seen["splits"])
    assert len(seen["epochs"]) > 3
    assert seen["wide"] <= 0


def test_a_page_that_asks_for_something_or_has_a_fault_is_seen(browser: str, page: Path) -> None:
    broken = page.with_name("broken.html")
    asks = '<img src="picture.png"><script>absent()</script></section>'
    broken.write_text(page.read_text("utf-8").replace("</section>", asks), "utf-8")
    seen = looked(browser, broken, "looked_broken.html")
    assert any("picture.png" in one for one in seen["asked"])
    assert any("absent" in one for one in seen["faults"])


def test_its_picture_has_the_curves_and_the_bars(browser: str, page: Path) -> None:
    from matplotlib.image import imread

    shot = page.with_name("report.png")
    browsed(browser, page, f"--screenshot={shot}")
    pixels = (imread(shot)[:, :, :3] * 255).round().astype(int)
    assert pixels.shape == (2400, 1200, 3)
    blue = abs(pixels - BLUE).max(axis=2) <= 2
    assert blue.sum() > 1_000
    dark = pixels.max(axis=2) < 100
    assert dark.sum() > 2_000  # text
