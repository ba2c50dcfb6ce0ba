"""The report of a real run in a real browser: what is laid out, what is drawn, and that nothing is asked for."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from typed import Place

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
LIMIT_S = 120.0
"""A page takes it 2 s here; a busy machine, and the first start of a browser, ten times that."""

LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
PAPER = {LIGHT: "rgb(255, 255, 255)", DARK: "rgb(20, 25, 31)"}
BLUE = {LIGHT: "rgb(29, 95, 168)", DARK: "rgb(108, 176, 245)"}
"""Of the page, and of its curves."""

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
  const box = e => {
    const b = e.getBoundingClientRect();
    return [e.textContent, b.left, b.top, b.right, b.bottom];
  };
  seen.headings = all("h1, h2", e => [e.textContent, ...size(e)]);
  seen.pictures = all("figure > svg", size).filter(([wide]) => wide);
  seen.texts = [...document.querySelectorAll("figure > svg")].map(e => [...e.querySelectorAll("text")].map(box));
  seen.curves = all("figure > svg > path.one", e => [getComputedStyle(e).stroke, ...size(e)]);
  seen.parts = all(".part b", size);
  seen.commits = all(".commits tr", size);
  seen.wide = document.documentElement.scrollWidth - innerWidth;
  seen.inner = innerWidth;
  seen.paper = getComputedStyle(document.body).backgroundColor;
  top.document.title = "looked at " + JSON.stringify(seen);
});
</script>"""
"""The page's own browser says it: sizes as laid out, in pixels."""

FRAME = """<!doctype html><meta name="color-scheme" content="light dark"><title></title>
<iframe src="{}" style="width: {}px; height: 2400px; border: 0"></iframe>"""
"""A browser's window is at least 500 pixels wide, a frame is as wide as a telephone."""


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
    place.configured()  # so slowly that it is still copying when the rate is lifted
    with place.began("start", "--until", "caught-up") as runner:
        place.until(lambda job: job.get("rows_read", 0) > 0)
        assert place.typed("throttle", "--rate", "none").returncode == 0
        assert runner.wait(120) == 0, place.said
    assert place.typed("verify").returncode == 0
    written = place.typed("report", "--out", "report.html")
    assert written.returncode == 0, written.stderr
    return place.folder / "report.html"


def browsed(browser: str, page: Path, scheme: str) -> str:
    """What a browser makes of a page; it keeps nothing, and asks its maker for nothing."""
    quiet = ("--disable-background-networking", "--no-first-run", f"--user-data-dir={page.parent / 'profile'}")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", *quiet)
    shown = ("--allow-file-access-from-files", "--window-size=1400,2400", "--dump-dom", page.as_uri())
    command = [browser, *flags, scheme, *shown]
    told = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def looked(browser: str, page: Path, width: int = 1200, scheme: str = LIGHT) -> dict[str, Any]:
    """What the browser makes of the page. A copy says it: the page itself has no script."""
    allowed = f'<meta http-equiv="Content-Security-Policy" content="{NOTHING_FETCHED}">'
    text = page.read_text("utf-8")
    copy = page.with_name(f"looked_{page.name}")
    copy.write_text(
        text.replace("<head>", f"<head>{allowed}{WATCH}", 1).replace("</body>", f"{LOOK}</body>", 1), "utf-8"
    )
    frame = page.with_name("frame.html")
    frame.write_text(FRAME.format(copy.name, width))
    told = re.search("<title>looked at (.*?)</title>", browsed(browser, frame, scheme), re.DOTALL)
    assert told is not None
    return dict(json.loads(unescape(told[1])))


def overlapping(texts: list[tuple[str, float, float, float, float]]) -> list[tuple[str, str]]:
    """Texts of one picture whose boxes have more than a pixel in common."""
    return [
        (one[0], other[0])
        for one, other in combinations(texts, 2)
        if min(one[3], other[3]) - max(one[1], other[1]) > 1 and min(one[4], other[4]) - max(one[2], other[2]) > 1
    ]


@pytest.mark.parametrize(("width", "scheme"), [(1200, LIGHT), (768, DARK), (420, DARK)])
def test_every_section_is_laid_out_and_nothing_is_asked_for(
    browser: str, page: Path, width: int, scheme: str
) -> None:
    seen = looked(browser, page, width, scheme)
    assert (seen["asked"], seen["faults"]) == ([], [])
    assert (seen["inner"], seen["paper"]) == (width, PAPER[scheme])
    headings = {title: (wide, high) for title, wide, high in seen["headings"]}
    sections = {"Phases", "Over time", "Commands and events", "Parts", "Commits", "Config"}
    assert set(headings) == {"orders done", *sections}
    assert all(wide > 0 and high > 10 for wide, high in headings.values())
    assert [wide > 0.8 * width and high > 80 for wide, high in seen["pictures"]] == [True] * 5
    labels = {text for texts in seen["texts"] for text, left, top, right, bottom in texts if right > left}
    assert "0 s" in labels
    for event in ("caught up", "throttle"):  # or, where two are close together, how many
        assert any(event in one or "events" in one for one in labels)
    assert [overlapping(texts) for texts in seen["texts"]] == [[]] * 15
    (read, written, lag) = [one for one in seen["curves"] if one[1]]
    assert read[0] == written[0] == lag[0] == BLUE[scheme]
    assert all(wide > 0.5 * width and high > 50 for _, wide, high in (read, written))
    assert all(wide > 20 and high > 2 for wide, high in seen["parts"])
    assert seen["parts"]
    assert len(seen["commits"]) > 3
    assert seen["wide"] <= 0


def test_a_page_that_asks_for_something_or_has_a_fault_is_seen(browser: str, page: Path) -> None:
    broken = page.with_name("broken.html")
    asks = '<img src="picture.png"><script>absent()</script></section>'
    broken.write_text(page.read_text("utf-8").replace("</section>", asks), "utf-8")
    seen = looked(browser, broken)
    assert any("picture.png" in one for one in seen["asked"])
    assert any("absent" in one for one in seen["faults"])
