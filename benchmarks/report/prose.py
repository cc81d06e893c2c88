"""`python -m benchmarks findings --check`: what the pages in `docs/findings` say in words against their own results.

Words of comparison stand in a sentence with a mark, and a mark is checked against the tables of the page:

* `[met: TEXT]` or `[not met: TEXT]`: the verdict of the one claim or bar that begins so;
* `[SETTING: A, B > C]` or `<`: every method before the sign against every one behind it, in the row "ours" (`best
  SETTING`: in the row "best") of the first table that has them;
* in the index, `[met in PAGE: TEXT]`; every row there that gives a verdict has one.

A claim of a paper that does not hold has at least two other ways of measuring it below it, with their numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

BEGIN, END = "<!-- results: written by `python -m benchmarks findings DIR` -->", "<!-- end of results -->"

WORDS = re.compile(r"\b(ahead|behind|level (?:with|on)|best|reproduced|leads?|outperforms?|beats?)\b")

MARK = re.compile(
    r"\[(?:(?P<verdict>met|not met)(?: in (?P<page>\w+))?: (?P<claim>[^\]]+)"
    r"|(?P<setting>[^\]\[:]+): (?P<left>[^\]<>]+) (?P<sign>[<>]) (?P<right>[^\]<>]+))\]"
)

JUDGED = ("holds", "partly", "does not hold")

VERDICTS = ("met", "not met")

TRIES = 2  # of a claim of a paper that does not hold


class Judged(NamedTuple):
    """A claim of a paper as its page has it, and the rows of what was tried for it: how, text, verdict, numbers."""

    text: str
    verdict: str
    numbers: str
    tried: list[list[str]]

    @property
    def outcome(self) -> str:
        """Say whether it holds: "met", "met equally", by a way that measures it as well, or "not met"."""
        equally = any(how == "equally" and verdict == "met" for how, _, verdict, _ in self.tried)
        return "met equally" if self.verdict != "met" and equally else self.verdict


def find_faults(folder: Path) -> list[str]:
    """List what the prose of the pages in a folder says and their results do not."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}
    faults = []
    for name, text in pages.items():
        found = _faults_of_index(pages) if name == "index" else _faults_of_page(text)
        faults += [f"{name}: {fault}" for fault in found]
    return faults


def judged_claims(page: str) -> list[Judged]:
    """List the claims of papers that a page's results judge."""
    found: list[Judged] = []
    origin = ""
    for row in (cells for cells in _rows(_results(page)) if len(cells) == 4 and cells[2] in VERDICTS):
        origin = row[0] if row[0] in ("paper", "target") else origin
        if row[0] == "paper":
            found.append(Judged(row[1], row[2], row[3], []))
        elif row[0] in ("tried", "equally") and origin == "paper":
            found[-1].tried.append(row)
    return found


def list_claims(folder: Path) -> Iterator[str]:
    """Write every claim of a paper on the pages of a folder in a line, and what was tried for it in lines below."""
    for path in sorted(folder.glob("*.md")):
        for claim in judged_claims(path.read_text(encoding="utf-8")):
            yield f"{path.stem}: {claim.outcome}: {claim.text} ({claim.numbers})"
            yield from (f"    {how}, {verdict}: {text} ({numbers})" for how, text, verdict, numbers in claim.tried)


def _faults_of_page(text: str) -> Iterator[str]:
    if END not in text:
        return
    results, prose = _results(text), text.partition(END)[2]
    yield from (f"{number} is in no table" for number in untabled_numbers(text))
    for claim in judged_claims(text):
        if claim.outcome == "not met" and len(claim.tried) < TRIES:
            yield f"{len(claim.tried)} of {TRIES} other ways tried for a claim that does not hold: {claim.text}"
    for sentence in _sentences(prose):
        marks = list(MARK.finditer(sentence))
        if not marks and (word := WORDS.search(sentence)):
            yield f"{word[0]!r} without a claim: {sentence}"
        yield from (fault for mark in marks if (fault := _contradiction(mark, results)))


def _faults_of_index(pages: Mapping[str, str]) -> Iterator[str]:
    """Judge row by row: verdicts and words of comparison have a mark, and numbers stand in a page that is linked."""
    for cells in _rows(pages["index"]):
        row = " | ".join(cells)
        marks, linked = list(MARK.finditer(row)), re.findall(r"\((\w+)\.md\)", row)
        judged = any(re.match(rf"({'|'.join(JUDGED)})\b", cell, re.IGNORECASE) for cell in cells)
        if not marks and (judged or WORDS.search(row)):
            yield f"no claim: {row}"
        for mark in marks:
            fault = _contradiction(mark, _results(pages.get(mark["page"] or "", "")))
            yield from [fault] if fault else []
        known = {number for name in linked for number in re.findall(r"\d+\.\d+", _results(pages.get(name, "")))}
        yield from (
            f"{n} is on no page of {linked}" for n in re.findall(r"\d+\.\d+", MARK.sub("", row)) if n not in known
        )


def _contradiction(mark: re.Match[str], results: str) -> str:
    """Say in what a mark and the results differ; nothing where they agree."""
    if mark["verdict"]:
        fits = {
            (text, verdict)
            for cells in _rows(results)
            for verdict in cells
            if verdict in VERDICTS
            for text in cells[:2]
            if text.startswith(mark["claim"].strip())
        }
        exact = {fit for fit in fits if fit[0] == mark["claim"].strip()}
        verdicts = {verdict for _, verdict in exact or fits}
        if len(verdicts) != 1:
            return f"{mark[0]}: {'no claim begins' if not verdicts else 'claims of both verdicts begin'} so"
        return "" if verdicts == {mark["verdict"]} else f"{mark[0]}: it is {verdicts.pop()!r}"
    column, setting = "ours", mark["setting"].strip()
    if setting.startswith("best "):
        column, setting = "best", setting.removeprefix("best ")
    names = [[name.strip() for name in mark[side].split(",")] for side in ("left", "right")]
    table = _scores(results, setting, column, {*names[0], *names[1]})
    if table is None:
        return f"{mark[0]}: no row {setting} has all of these methods"
    pairs = [(table[a], table[b]) for a in names[0] for b in names[1]]
    holds = all(a > b if mark["sign"] == ">" else a < b for a, b in pairs)
    return "" if holds else f"{mark[0]}: not in the table, {table}"


def _scores(results: str, setting: str, column: str, names: set[str]) -> dict[str, float] | None:
    """Read a row of the first table that has a setting and methods."""
    head: list[str] = []
    columns = ("ours", "chosen") if column == "ours" else (column,)
    for cells in _rows(results):
        if cells[0] == "setting":
            head = cells
        elif head and cells[0].strip("`") == setting and cells[1] in columns and len(cells) == len(head):
            row = {n: float(v.split()[0]) for n, v in zip(head, cells, strict=True) if re.match(r"-?\d", v)}
            if names <= row.keys():
                return {name: row[name] for name in sorted(names)}
    return None


def untabled_numbers(page: str) -> list[str]:
    """List the decimal numbers of the text behind a page's results that the results do not have."""
    known = set(re.findall(r"\d+\.\d+", _results(page)))
    prose = MARK.sub("", page.partition(END)[2])
    return [number for number in re.findall(r"\d+\.\d+", prose) if number not in known]


def _results(page: str) -> str:
    return page.partition(END)[0].partition(BEGIN)[2]


def _rows(text: str) -> Iterator[list[str]]:
    """Cells of the rows of Markdown tables."""
    for line in text.splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def _sentences(prose: str) -> list[str]:
    """Cut text at full stops; headings, tables and code are none."""
    paragraphs = [p for p in re.split(r"\n\s*\n", prose) if not re.match(r"\s*(#|\|| {4}|```)", p)]
    joined = [" ".join(p.split()) for p in paragraphs]
    return [s for p in joined for s in re.split(r"(?<=[.!?])\s+(?=[A-Z])", p) if s]
