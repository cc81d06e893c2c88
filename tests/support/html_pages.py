"""Reading pages of reports: what is in them, and what a browser makes of them."""

import json
import os
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest


class Page(HTMLParser):
    """All tags with their attributes, the text, and whether every tag is closed."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.open, self.text, self.rows = [], [], "", []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append([dict(attrs), ""])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1][1] += data

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    def row(self, first):
        return next(row for row in self.rows if row and row[0][1] == first)

    def linked_files(self):
        """The files that the page links to; it needs no other one, loads nothing, and its inner links have ends."""
        assert not self.open
        assert not self.all("link") and not any("src" in attrs for attrs in self.all("script"))
        policy = next(attrs["content"] for attrs in self.all("meta") if "http-equiv" in attrs)
        assert policy.startswith("default-src 'none'")
        ids = [attrs["id"] for _, attrs in self.tags if "id" in attrs]
        assert len(ids) == len(set(ids))
        links = [attrs["href"] for attrs in self.all("a")]
        inside = [link[1:] for link in links if link.startswith("#")]
        assert inside and set(inside) <= set(ids)
        return {unquote(link) for link in links if not link.startswith("#")}


PROBE = """
<script>
addEventListener("load", () => {
  const told = {};
  const table = document.querySelector("table.sortable");
  const column = i => [...table.tBodies[0].rows].map(row => row.cells[i].textContent);
  const button = table.tHead.rows[0].cells[1].querySelector("button");
  button.focus();
  told.focused = document.activeElement === button;
  button.click();
  told.up = column(0);
  button.click();
  told.down = column(0);
  told.sort = table.tHead.rows[0].cells[1].getAttribute("aria-sort");
  told.loaded = performance.getEntriesByType("resource").filter(e => !e.name.startsWith("data:")).length;
  told.pictures = [...document.images].every(image => image.naturalWidth > 0);
  dispatchEvent(new Event("beforeprint"));
  told.opened = document.querySelectorAll("details:not([open])").length;
  Object.assign(document.body.style, { width: "320px", margin: "0" });
  told.wide = [...document.querySelectorAll("body *:not(script)")]
    .filter(e => !e.closest(".scroll") && !e.closest("figure.wide") && e.getBoundingClientRect().right > 321)
    .map(e => e.outerHTML.slice(0, 80));
  document.title = JSON.stringify(told);
});
</script>
</body>"""


def show_in_browser(page, tmp_path):
    """What a headless browser finds in a page whose first table is sorted by its second column."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no chromium on this machine")
    probed = tmp_path / "report.html"
    probed.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE), encoding="utf-8")
    options = ["--headless=new", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=600,800"]
    options += ["--no-sandbox"] if os.getuid() == 0 else []
    call = [browser, *options, "--virtual-time-budget=5000", "--dump-dom", probed.as_uri()]
    shown = subprocess.run(call, capture_output=True, text=True, timeout=120)
    start, end = shown.stdout.find("<title>"), shown.stdout.find("</title>")
    assert start >= 0, shown.stderr[-2000:]
    told = json.loads(unescape(shown.stdout[start + 7 : end]))
    return told
