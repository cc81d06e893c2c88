"""What may be handed to a call, and what may stand around it: one table over every estimator.

A circumstance changes nothing (the answers are those of plain arrays), or it is refused with a message that names it.
"""

import copy
import warnings
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from estimators import CLASSIFIERS, MATRIX, SUPERVISED
from sklearn.exceptions import ConvergenceWarning

from nnfactor import NMF, CoTraining, PairwiseCoRegularizedSpectral

GROUPS = np.arange(16) % 3
CODES = np.where(np.arange(16) % 4 == 3, -1, GROUPS)


def counts(n=16, m=8):
    """Whole numbers below 2^7, which every type holds exactly; some are zero; three groups."""
    rng = np.random.default_rng(0)  # its l1 codes are unique: rounding does not choose among them
    X = rng.integers(1, 40, size=(n, m)) + 60 * np.eye(3, m, dtype=int)[np.arange(n) % 3]
    X[rng.random((n, m)) < 0.25] = 0
    return X


COUNTS = counts()
PLAIN = COUNTS.astype(float)


@dataclass(frozen=True)
class Subject:
    """An estimator, and everything that it answers after a fit, as arrays."""

    make: Callable[..., Any]
    answers: Callable[[Any, Any], dict[str, Any]]
    tol: float = 1e-6
    views: bool = False


def of_factorization(model, X):
    found = {"embedding_": model.embedding_, "transform": (coefficients := model.transform(X))}
    if hasattr(model, "inverse_transform"):
        found["inverse_transform"] = model.inverse_transform(coefficients)
    return found


def of_classifier(ask):
    def found(model, X):
        answers = {"answer": ask(model, X)}
        return answers | ({"predict": model.predict(X)} if hasattr(model, "predict") else {})

    return found


SUBJECTS = {
    **{
        key: Subject(lambda row=row: row(random_state=0, max_iter=12, tol=0, init="random"), of_factorization)
        for key, row in MATRIX.items()
        if key != "SULF, strong"  # penalties of 1e8 multiply rounding
    },
    **{key: Subject(row.make, of_classifier(row.answer), max(row.tol, 1e-5)) for key, row in SUPERVISED.items()},
    "CoTraining, two views": Subject(
        lambda: CoTraining(n_rounds=2), of_classifier(lambda model, X: model.predict_proba(X)), 1e-5, views=True
    ),
    "PairwiseCoRegularizedSpectral": Subject(
        lambda: PairwiseCoRegularizedSpectral(3, random_state=0, n_init=3),
        lambda model, X: {"labels_": model.labels_, "similarity": model.embedding_ @ model.embedding_.T},
        1e-4,
        views=True,
    ),
}
every = pytest.mark.parametrize("key", SUBJECTS)


def split(subject, X, view):
    """The matrix as the estimator takes it: itself, or its halves as views."""
    return [view(X[:, :4]), view(X[:, 4:])] if subject.views else view(X)


def answers(subject, given, y=CODES, around=nullcontext):
    with around(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = subject.make().fit(given, y)
        return model, subject.answers(model, given)


@cache
def expected_answers(key, times=1):
    """What plain arrays give: data of whole numbers, a multiple of them."""
    subject = SUBJECTS[key]
    return answers(subject, split(subject, times * PLAIN, np.array))


def numbers(a):
    a = a.cpu() if isinstance(a, torch.Tensor) else a
    a = a.float() if isinstance(a, torch.Tensor) and a.dtype == torch.bfloat16 else a
    return np.asarray(a)


def same(found, expected, tol):
    assert found.keys() == expected.keys()
    for name in expected:
        a, b = numbers(found[name]), numbers(expected[name])
        assert a.shape == b.shape, name
        if b.dtype.kind in "iuUO":
            assert (a == b).all(), name
        else:
            np.testing.assert_allclose(a, b, rtol=tol, atol=tol * max(np.abs(b).max(), 1e-300), err_msg=name)


def read_only(X):
    X = X.astype(float)
    X.flags.writeable = False
    return X


def wide_indices(X):
    S = sp.csr_matrix(X.astype(float))
    S.indices, S.indptr = S.indices.astype(np.int64), S.indptr.astype(np.int64)
    return S


def repeated(X, dtype, parts=3):
    """Entries stored in parts whose sum a narrow type cannot hold: cast first, then add."""
    i, j = np.nonzero(X)
    values = np.concatenate([X[i, j]] * parts).astype(dtype)
    return values, (np.concatenate([i] * parts), np.concatenate([j] * parts))


def scipy_repeated(dtype):
    return lambda X: sp.coo_array(repeated(X, dtype), shape=X.shape)


def torch_repeated(dtype):
    def give(X):
        values, at = repeated(X, dtype)
        return torch.sparse_coo_tensor(
            torch.tensor(np.array(at)), torch.from_numpy(values), X.shape, check_invariants=True
        )

    return give


INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FORMATS = {f"{f}_{kind}": getattr(sp, f"{f}_{kind}") for f in ("csr", "csc", "coo") for kind in ("array", "matrix")}


def half(dtype):
    return lambda X: torch.from_numpy(X.astype("float32")).to(dtype)


SAME = {  # what is given -> (how, the plain matrix it stands for as a multiple of COUNTS, tolerance at least)
    "fortran": (lambda X: np.asfortranarray(X, dtype=float), 1, 0),
    "read-only": (read_only, 1, 0),
    "reversed": (lambda X: np.ascontiguousarray(X[::-1, ::-1].astype(float))[::-1, ::-1], 1, 0),
    "big-endian": (lambda X: X.astype(">f8"), 1, 0),
    "long double": (lambda X: X.astype(np.longdouble), 1, 0),
    "objects": (lambda X: X.astype(object), 1, 0),
    "list": (lambda X: X.astype(float).tolist(), 1, 0),
    "frame": (lambda X: pd.DataFrame(X.astype(float), columns=[f"f{j}" for j in range(X.shape[1])]), 1, 0),
    "masked array, nothing masked": (lambda X: np.ma.masked_array(X.astype(float), mask=False), 1, 0),
    **{dtype: (lambda X, dtype=dtype: X.astype(dtype), 1, 0) for dtype in INTEGERS},
    "torch": (lambda X: torch.from_numpy(X.astype(float)), 1, 0),
    "torch, requires grad": (lambda X: torch.from_numpy(X.astype(float)).requires_grad_(), 1, 0),
    "float16": (lambda X: X.astype("float16"), 1, 2e-3),
    "torch float16": (half(torch.float16), 1, 2e-3),
    "torch bfloat16": (half(torch.bfloat16), 1, 2e-3),
    "torch float16, sparse": (lambda X: half(torch.float16)(X).to_sparse(), 1, 2e-3),
    "torch bfloat16, sparse": (lambda X: half(torch.bfloat16)(X).to_sparse(), 1, 2e-3),
    "torch csr": (lambda X: quiet(lambda: torch.from_numpy(X.astype(float)).to_sparse_csr()), 1, 1e-5),
    **{name: (lambda X, form=form: form(X.astype(float)), 1, 1e-5) for name, form in FORMATS.items()},
    **{f"csr {dtype}": (lambda X, dtype=dtype: sp.csr_array(X.astype(dtype)), 1, 1e-5) for dtype in INTEGERS},
    "csr, 64-bit indices": (wide_indices, 1, 1e-5),
    **{f"coo {d}, repeated": (scipy_repeated(d), 3, 1e-5) for d in ("uint8", "int8", "int16", "uint16")},
    **{f"torch coo {d}, repeated": (torch_repeated(d), 3, 1e-5) for d in ("uint8", "int8", "int16")},
}


def quiet(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch: its CSR is in beta
        return make()


def with_entry(value):
    def give(X):
        X = X.astype(float)
        X[2, 3] = value
        return X

    return give


def foreign(shift):
    def give(X):
        S = sp.csr_array(X.astype(float))
        return sp.csr_array((S.data, S.indices + shift, S.indptr), shape=S.shape)

    return give


REFUSED = {  # what is given -> (how, what the message says)
    "masked array": (lambda X: np.ma.masked_array(X.astype(float), mask=X[2, 3] == X), "masked"),
    "NaN": (with_entry(np.nan), "NaN"),
    "list with NaN": (lambda X: with_entry(np.nan)(X).tolist(), "NaN"),
    "infinite": (with_entry(np.inf), "inf"),
    "complex": (lambda X: X.astype(complex), "[Cc]omplex"),
    "text": (lambda X: X.astype(str), "text"),
    "bytes": (lambda X: X.astype(bytes), "text"),
    "objects of text": (lambda X: X.astype(str).astype(object), "text"),
    "dates": (lambda X: X.astype("datetime64[s]"), "date"),
    "durations": (lambda X: X.astype("timedelta64[s]"), "timedelta"),
    "frame with a column of text": (lambda X: pd.DataFrame(X).assign(tissue="liver"), "tissue"),
    "one-based indices": (foreign(1), "ind(ex|ices)"),
    "negative indices": (foreign(-1), "ind(ex|ices)"),
}


@contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def default_dtype():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


AROUND = {
    "default device": lambda: torch.device("meta"),  # stands for "cuda": the data are elsewhere
    "default dtype": default_dtype,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "gradients": torch.enable_grad,
    "deterministic algorithms": deterministic,
}


@every
@pytest.mark.parametrize("kind", SAME)
def test_every_kind_of_array_gives_the_same_answers(key, kind):
    subject, (give, times, tol) = SUBJECTS[key], SAME[kind]
    given = split(subject, COUNTS, give)
    before = copied(given)
    expected = expected_answers(key, times)[1]
    found = answers(subject, given)[1]
    same(found, expected, max(tol, subject.tol) * (1 + 9 * (tol > 1e-4)))
    assert unchanged(before, given)


def copied(given):
    if isinstance(given, list):
        return [copied(part) for part in given]
    return given.detach().clone() if isinstance(given, torch.Tensor) else copy.deepcopy(given)


def unchanged(before, after):
    if isinstance(before, list) and before and not np.isscalar(before[0]):
        return all(unchanged(a, b) for a, b in zip(before, after, strict=True))
    if sp.issparse(before):
        return (before != after).nnz == 0 and before.dtype == after.dtype
    if isinstance(before, torch.Tensor):
        return torch.equal(before.detach().to_dense().double(), after.detach().to_dense().double())
    return np.array_equal(np.asarray(before), np.asarray(after))


@every
@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_read_is_refused(key, kind):
    subject, (give, message) = SUBJECTS[key], REFUSED[kind]
    if kind == "masked array" and hasattr(subject.make(), "missing"):
        pytest.skip("it honours masks: tests/models/factorization/test_hidden.py")
    given = [give(COUNTS[:, :4]), PLAIN[:, 4:]] if subject.views else give(COUNTS)
    with pytest.raises((ValueError, TypeError), match=message):
        subject.make().fit(given, CODES)
    model, _ = expected_answers(key)
    ask = getattr(model, "transform", getattr(model, "predict", None))
    if ask is not None:
        with pytest.raises((ValueError, TypeError), match=message):
            ask(given)


@every
@pytest.mark.parametrize("kind", AROUND)
@pytest.mark.parametrize("torch_data", [False, True], ids=["numpy", "torch"])
def test_what_stands_around_a_call_changes_nothing(key, kind, torch_data):
    subject = SUBJECTS[key]
    given = split(subject, PLAIN, torch.from_numpy if torch_data else np.array)
    expected = answers(subject, given)[1]
    _, found = answers(subject, given, around=AROUND[kind])
    same(found, expected, subject.tol)
    for name in expected:
        assert expected[name].dtype == found[name].dtype, name


NAMES = np.array(["ash", "bee", "oak"])
AS_NAMES = [None if c < 0 else str(NAMES[c]) for c in CODES]
MARKED = {  # the same labels, in every container and with every marker
    "-1": CODES,
    "list of -1": CODES.tolist(),
    "NaN": np.where(CODES < 0, np.nan, CODES),
    "list of NaN": np.where(CODES < 0, np.nan, CODES).tolist(),
    "None": np.array([None if c < 0 else c for c in CODES], dtype=object),
    "list of None": [None if c < 0 else int(c) for c in CODES],
    "Series": pd.Series(CODES),
    "Series with NA": pd.Series([pd.NA if c < 0 else int(c) for c in CODES], dtype="Int64"),
    "tensor": torch.from_numpy(CODES),
    "names, None": AS_NAMES,
    "names, NaN": [np.nan if a is None else a for a in AS_NAMES],
    "names, -1": [-1 if a is None else a for a in AS_NAMES],
    "names, empty text": ["" if a is None else a for a in AS_NAMES],
    "names, an array of text": np.array(["" if a is None else a for a in AS_NAMES]),
    "names, Python's NaN in a tuple": tuple(float("nan") if a is None else a for a in AS_NAMES),
    "names, Series": pd.Series([np.nan if a is None else a for a in AS_NAMES], dtype=object),
    "names, categorical": pd.Categorical(AS_NAMES),
}
LABELLED = [
    key
    for key, subject in SUBJECTS.items()
    if key != "PairwiseCoRegularizedSpectral"
    and not key.startswith(("NMF", "NTF", "SemiNMF", "LNMF", "Kernel", "Poly"))
]


def by_code(found):
    """Answers with predicted classes as codes, whatever the classes are called."""
    if "predict" in found:
        classes = np.unique(np.asarray([str(c) for c in numbers(found["predict"])]))
        order = {c: i for i, c in enumerate(classes)}
        found = found | {"predict": np.array([order[str(c)] for c in numbers(found["predict"])])}
    return found


@pytest.mark.parametrize("key", LABELLED)
@pytest.mark.parametrize("kind", MARKED)
def test_a_marker_is_one_in_every_container(key, kind):
    subject = SUBJECTS[key]
    given = split(subject, PLAIN, np.array)
    expected = expected_answers(key)[1]
    model, found = answers(subject, given, MARKED[kind])
    same(by_code(found), by_code(expected), subject.tol)
    if hasattr(model, "classes_"):
        assert len(model.classes_) == 3
    if hasattr(model, "score") and "predict" in found:
        labelled = CODES >= 0
        right = (by_code(found)["predict"] == CODES)[labelled].mean()
        assert model.score(given, MARKED[kind]) == pytest.approx(right)


@pytest.mark.parametrize("key", CLASSIFIERS)
@pytest.mark.parametrize("y", [np.full(16, -1), [None] * 16, [np.nan] * 16], ids=["-1", "None", "NaN"])
def test_a_score_without_a_label_is_refused(key, y):
    model, _ = expected_answers(key)
    with pytest.raises(ValueError, match="label"):
        model.score(PLAIN, y)


def test_a_masked_array_is_refused_wherever_arrays_go():
    hidden = np.ma.masked_array(np.ones((8, 3)), mask=np.eye(8, 3, dtype=bool))
    with pytest.raises(ValueError, match="masked"):
        NMF(3, init=(np.ones((16, 3)), hidden)).fit(PLAIN)


def test_masked_labels_are_unlabelled():
    subject = SUBJECTS["HarmonicFunction"]
    _, found = answers(subject, PLAIN, np.ma.masked_array(np.where(CODES < 0, 2, CODES), CODES < 0))
    same(found, expected_answers("HarmonicFunction")[1], subject.tol)
