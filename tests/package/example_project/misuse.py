"""Wrong calls, each with the code of the error that `mypy --strict` must report in its line, and none in any other."""

from matplotlib.axes import Axes

from nnfactor import NMF, NTF, SULF, batch_fit, penalties, select_rank
from nnfactor.callbacks import JSONLines, Progress
from nnfactor.core import Laplacian
from nnfactor.io import read_data, write_table
from nnfactor.metrics import factor_match_score
from nnfactor.plots import images_plot, write_report

X = [[1.0, 2.0], [3.0, 4.0]]

NMF(2, solver="cd")  # error: arg-type
NMF(2, loss="hinge")  # error: arg-type
NMF(2, n_componets=3)  # error: call-arg
NMF("two")  # error: arg-type
NMF(2, callback=3)  # error: arg-type
NMF(2, n_init=1.5)  # error: arg-type
NTF(2, init="svd")  # error: arg-type
NMF(2).fit(X, sample_weights=X)  # error: call-arg
NMF(2).fit(X).embeding_  # error: attr-defined
NMF(2).fit(X).loss_.shape  # error: attr-defined
NMF(2).fit(X).n_iter_ + "sweeps"  # error: operator
SULF(2).predcit([X])  # error: attr-defined
batch_fit([NMF(2), NTF(2)], X)[0].core_  # error: attr-defined
found = select_rank(NMF(2), X, 5)  # error: arg-type
found = select_rank(NMF(2), X, range(1, 3), "bic")  # error: arg-type
found.rank + 1  # error: operator
found.model.core_  # error: attr-defined
select_rank("NMF", X, [1])  # error: type-var
penalties.L1("small")  # error: arg-type
read_data(3)  # error: arg-type
read_data("a.csv").columns  # error: attr-defined
write_table("a.csv", X, 3)  # error: arg-type
JSONLines(1.5)  # error: arg-type
Laplacian(X, "V", split="both")  # error: arg-type
factor_match_score(X, X).shape  # error: attr-defined
figure: Axes = write_report("folder")  # error: assignment
images_plot(NMF(2), image_shape=8)  # error: arg-type


def callback(progress: Progress) -> bool:
    """Read what a progress does not have."""
    print(progress.loss)  # error: attr-defined
    return False
