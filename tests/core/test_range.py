"""Data near the ends of the floating-point range: divided before they are cast, published in range or refused by name."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from estimators import MATRIX, SUPERVISED, blocks, labels

from nnfactor import NGE, NMF, NTF, SemiNMF
from nnfactor.core import as_data
from nnfactor.core.data.as_data import as_scaled_data

X = blocks()
X = X / X.max()
ALL = MATRIX | SUPERVISED
KINDS = {
    "numpy": np.asarray,
    "scipy": sp.csr_array,
    "torch": torch.from_numpy,
    "torch, sparse": lambda X: torch.from_numpy(X).to_sparse_coo(),
}


def fit(model, X):
    return model.fit(X, labels(len(X)))


@pytest.mark.parametrize("size", [1e-60, 1e60])
@pytest.mark.parametrize("key", ALL)
def test_a_cast_that_would_lose_the_data_is_refused(key, size):
    with pytest.raises(ValueError, match="float32 cannot hold; divide"):
        fit(ALL[key](dtype="float32"), X * size)


@pytest.mark.parametrize("size", [1e-60, 1e60])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_of_data_is_divided_before_it_is_cast(kind, size):
    given = kind(X * size)
    for read in (as_data, as_scaled_data):
        with pytest.raises(ValueError, match=r"X has entries up to 1e[-+]60, which float32 cannot hold"):
            read(given, dtype=torch.float32)
    model = NMF(3, dtype="float32", random_state=0).fit(X)
    with pytest.raises(ValueError, match="float32 cannot hold"):
        model.transform(given)
    near = kind(X * 2.0**126)
    data, unscaled, scale = as_scaled_data(near, dtype=torch.float32)
    assert (data.dtype, scale, data.largest()) == (torch.float32, 2.0**126, 1.0)
    assert float(unscaled.largest()) == 2.0**126
    tiny = as_scaled_data(kind(X * 2.0**-140), dtype=torch.float32)[0]  # entries that float32 could hold as denormals
    torch.testing.assert_close(tiny.sqnorm(), as_data(X).sqnorm(), rtol=1e-6, atol=0)


def test_sparse_tensors_are_divided_in_their_own_precision():
    given = torch.from_numpy(X.reshape(len(X), -1, 2) * 2.0**-140).to_sparse()
    data, _, scale = as_scaled_data(given, dtype=torch.float32)
    assert scale == 2.0**-140 and data.dtype == torch.float32
    torch.testing.assert_close(data.sqnorm(), as_data(X).sqnorm(), rtol=1e-6, atol=0)
    with pytest.raises(ValueError, match="float32 cannot hold"):
        as_data(given * 1e120, dtype=torch.float32)


CP = {
    "NMF": lambda **kw: NMF(3, random_state=0, **kw),
    "mu": lambda **kw: NMF(3, random_state=0, solver="mu", **kw),
    "divergence": lambda **kw: NMF(3, loss=1, random_state=0, **kw),
    "restarts": lambda **kw: NMF(3, n_init=3, random_state=0, keep_embeddings=True, **kw),
    "NTF": lambda **kw: NTF(3, sample_shape=(4, 2), random_state=0, **kw),
    "NGE": lambda **kw: NGE(3, random_state=0, **kw),
    "SemiNMF": lambda **kw: SemiNMF(3, random_state=0, **kw),
}


ENDS = [("float32", p) for p in (40, 127, -120)] + [("float64", p) for p in (400, 1023, -999)]


def exponent(F):
    return int(np.frexp(np.abs(np.asarray(F)).max())[1])


@pytest.mark.parametrize("dtype, power", ENDS)
@pytest.mark.parametrize("key", CP)
def test_factors_share_the_scale_of_the_data(key, dtype, power):
    """They are those of data of size 1, bit for bit, times powers of two that give the size of the data together."""
    usual, extreme = X.astype(dtype), np.ldexp(X.astype(dtype), power)
    one, model = fit(CP[key](dtype=dtype), usual), fit(CP[key](dtype=dtype), extreme)
    pairs = list(zip((one.embedding_, *one.factors_), (model.embedding_, *model.factors_), strict=True))
    steps = [exponent(b) - exponent(a) for a, b in pairs]
    assert sum(steps) == power and (model.converged_, model.n_iter_) == (one.converged_, one.n_iter_)
    for (a, b), step in zip(pairs, steps, strict=True):
        assert np.isfinite(b).all() and exponent(b) > np.frexp(np.finfo(dtype).tiny)[1]
        np.testing.assert_array_equal(np.ldexp(b, -step), a)
    if key == "restarts":
        assert all(np.isfinite(F).all() for F in (model.restarts_["embeddings"], *model.restarts_["factors"]))
    if abs(power) < 1000 and power != 127:  # at the very ends coefficients of single samples may leave the range
        again, before = model.transform(extreme), one.transform(usual)
        np.testing.assert_allclose(np.ldexp(again, -steps[0]), before, rtol=1e-3, atol=1e-4 * np.abs(before).max())


def test_a_sentinel_of_the_largest_number():
    Y = X.astype(np.float32)
    Y[3, 4] = np.finfo(np.float32).max
    model = NMF(3, loss="kullback-leibler", random_state=0).fit(Y)
    assert all(np.isfinite(F).all() for F in (model.embedding_, model.components_))


@pytest.mark.parametrize(
    "dtype, size",
    [("float32", 1e38), ("float32", np.finfo("f4").max), ("float32", 1e-42)]
    + [("float64", size) for size in (5e307, np.finfo("f8").max, 1e-320)],
)
@pytest.mark.parametrize("key", ALL)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_nothing_infinite_or_zero_is_published(key, dtype, size):
    Y = (X * size).astype(dtype)
    model = ALL[key]()
    try:
        fit(model, Y)
        answers = [model.transform(Y) if key in MATRIX else ALL[key].answer(model, Y)]
    except (ValueError, FloatingPointError) as error:
        assert any(word in str(error) for word in ("divide X", "rescale", "Check the scale", "beta", "too large")), (
            error
        )
        return
    published = [model.embedding_, *model.factors_] if key in MATRIX else []
    for F in published + answers:
        assert np.isfinite(F).all()
    assert all((np.asarray(F) != 0).any() for F in published)
