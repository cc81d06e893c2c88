"""How results look in notebooks: short, escaped, the suggestion marked, without matplotlib."""

import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from nnfactor import NMF, RankSelection, consensus, select_rank

X = np.random.default_rng(0).random((20, 8))


class Reader(HTMLParser):
    """Text of the cells by row, which rows are bold, and the tags that are open in the end."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.bold, self.open, self.words = [], set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "b":
            self.bold.add(len(self.rows) - 1)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data
        else:
            self.words.append(data)


def test_a_rank_selection_is_its_table_with_the_suggested_row_marked():
    found = select_rank(NMF(2, max_iter=20), X, (1, 2, 3), criterion="stability", n_init=3, random_state=0)
    shown = Reader(found._repr_html_())
    assert shown.rows[0] == [str(name) for name in found.table] and not shown.open
    assert [row[0] for row in shown.rows[1:]] == ["1", "2", "3"]
    assert found.reason in "".join(shown.words)
    assert shown.bold == ({1 + [1, 2, 3].index(found.rank)} if found.rank else set())
    assert shown.rows[1][list(found.table).index("stability_mean")] == "–"  # noqa: RUF001
    assert len(found._repr_html_()) < 2000


@pytest.mark.parametrize("rank", [2, None])
def test_marks_and_reasons_are_escaped(rank):
    table = {"rank": np.array([2, 3]), "loss": np.array([0.123456, 12345.6])}
    shown = Reader(RankSelection(rank, "bicross", "<script>alert(1)</script> & more", table, {})._repr_html_())
    assert "<script>alert(1)</script> & more" in "".join(shown.words)  # as text
    assert shown.rows[1:] == [["2", "0.1235"], ["3", "12346"]]
    assert shown.bold == ({1} if rank else set())


def test_a_consensus_is_a_table_of_its_components():
    found = consensus(NMF(3, init="random", n_init=5, max_iter=30, tol=0, random_state=0).fit(X))
    shown = Reader(found._repr_html_())
    assert [row[0] for row in shown.rows[1:]] == ["1", "2", "3"]
    assert [row[1] for row in shown.rows[1:]] == ["yes" if stable else "no" for stable in found.stable]
    assert shown.bold == {1 + j for j in range(3) if found.stable[j]}
    assert repr(found) in "".join(shown.words)


def test_matplotlib_is_not_imported():
    code = (
        "import sys; from nnfactor import RankSelection; import numpy as np;"
        "RankSelection(1, 'bicross', '', {'rank': np.array([1])}, {})._repr_html_();"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
