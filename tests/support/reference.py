"""Plain float64 NumPy references for the tests, written straight from the equations.

This file shares no code with the package: only numpy and scipy, short explicit code,
nothing fast. Samples are rows. Factors are ``(V, U1, U2, ...)``, samples first, and
come back the same way as new arrays. A ``*_step`` is exactly one iteration: the feature
factors in mode order, then V, always with the newest factors. 0/0 leaves an entry as
it is. Names: ``M`` the MTTKRP of X, ``G`` the Hadamard product of the other factors'
Grams, ``Y`` a weighted graph Laplacian, ``w`` norms_of factors (products of squared column
norms). Data, factors and graphs are float64 arrays and nonnegative, graphs symmetric.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Array = NDArray[np.float64]
Factors = Sequence[Array]
VRule = str | tuple[str, int]
AXES = "abcdefgh"  # einsum letters of the modes; r is the component

# Products


def reconstruct(factors: Factors) -> Array:
    """[[V, U1, ...]]: sum over components of the outer products of the columns."""
    axes = AXES[: len(factors)]
    Y: Array = np.einsum(f"{_with_rank(axes)}->{axes}", *factors, optimize=True)
    return Y


def mttkrp(X: Array, factors: Factors, mode: int) -> Array:
    """M_b: X contracted with the columns of all factors but `mode`."""
    axes, own = AXES[: len(factors)], AXES[mode]
    others = [F for b, F in enumerate(factors) if b != mode]
    inputs = f"{axes},{_with_rank(axes.replace(own, ''))}"
    M: Array = np.einsum(f"{inputs}->{own}r", X, *others, optimize=True)
    return M


def gram(factors: Factors, mode: int) -> Array:
    """G_b: Hadamard product of the Grams of all factors but `mode`."""
    grams = [F.T @ F for b, F in enumerate(factors) if b != mode]
    G: Array = np.prod(grams, axis=0)
    return G


def khatri_rao(factors: Factors) -> Array:
    """Column-wise Kronecker product, rows in C order of the modes."""
    columns = range(factors[0].shape[1])
    return np.stack([reconstruct([F[:, [j]] for F in factors]).ravel() for j in columns], axis=1)


def norms_of(factors: Factors, mode: int = 0) -> Array:
    """w_j: product of the squared norms of column j in all U^b but `mode`."""
    w = np.ones(factors[0].shape[1])
    for b, U in enumerate(factors):
        if b not in (0, mode):
            w = w * np.sum(U**2, axis=0)
    return w


def _with_rank(axes: str) -> str:
    """The einsum subscripts of matrices with these rows: "ab" gives "ar,br"."""
    return ",".join(f"{axis}r" for axis in axes)


# Objectives


def frobenius(X: Array, factors: Factors) -> float:
    """||X - [[V, U1, ...]]||^2, from the residual itself."""
    return float(np.sum((X - reconstruct(factors)) ** 2))


def beta_divergence(X: Array, Y: Array, beta: float) -> float:
    """Section 1, summed over the entries; beta = 2 is the squared norm, 0 log 0 = 0."""
    return float(sum(_divergence(float(x), float(y), beta) for x, y in zip(X.flat, Y.flat, strict=True)))


def laplacian(S: Array) -> Array:
    """L = D - S, self loops removed."""
    S = S - np.diag(np.diag(S))
    return np.diag(S.sum(axis=1)) - S


def nge_objective(
    X: Array,
    factors: Factors,
    L_parts: tuple[Array, Array],
    alpha: float,
    q: int,
    beta: float = 0.0,
    Ss: Array | None = None,
) -> float:
    """Section 2: ||X - [[V, U1, ...]]||^2 + sum_j (prod_b ||u^b_j||^2) v_j' Y v_j."""
    Y = _penalties(L_parts, alpha, q, beta, Ss, factors[0].shape[1])
    energies = [_energy(Y[j], v) for j, v in enumerate(factors[0].T)]
    return frobenius(X, factors) + float(norms_of(factors) @ energies)


def _divergence(x: float, y: float, beta: float) -> float:
    """d(x, y) of section 1 for one entry, with its limits at zeros."""
    if beta <= 0 and x == 0:
        raise ValueError(f"beta = {beta} needs a positive X")
    if beta == 2:
        return (x - y) ** 2
    if y == 0 and beta <= 1:
        return math.inf if x > 0 else 0.0
    if beta == 1:
        return x * math.log(x / y) - x + y if x > 0 else y
    if beta == 0:
        return x / y - math.log(x / y) - 1
    top = x**beta + (beta - 1) * y**beta - beta * x * y ** (beta - 1)
    return float(top / (beta * (beta - 1)))


# Factorisations without supervision (section 1)


def nmf_step(X: Array, V: Array, U: Array) -> tuple[Array, Array]:
    """U *= (X'V)/(U V'V); V *= (XU)/(V U'U)."""
    U = U * _ratio(X.T @ V, U @ (V.T @ V))
    V = V * _ratio(X @ U, V @ (U.T @ U))
    return V, U


def beta_step(X: Array, V: Array, U: Array, beta: float) -> tuple[Array, Array]:
    """U *= [((Y^(b-2) X)'V) / ((Y^(b-1))'V)]^g, Y = VU'; V likewise, new U."""
    g = _exponent(beta)
    down, up = _beta_weights(X, V @ U.T, beta)
    U = U * _ratio(down.T @ V, up.T @ V) ** g
    down, up = _beta_weights(X, V @ U.T, beta)
    V = V * _ratio(down @ U, up @ U) ** g
    return V, U


def ntf_step(X: Array, factors: Factors) -> tuple[Array, ...]:
    """F_b *= M_b/(F_b G_b), any order."""
    F = list(factors)
    for b in _modes(F):
        F[b] = F[b] * _ratio(mttkrp(X, F, b), F[b] @ gram(F, b))
    return tuple(F)


def ntf_beta_step(X: Array, factors: Factors, beta: float) -> tuple[Array, ...]:
    """F_b *= [MTTKRP(Y^(b-2) X) / MTTKRP(Y^(b-1))]^g, Y = [[V, U1, ...]]."""
    F = list(factors)
    for b in _modes(F):
        down, up = _beta_weights(X, reconstruct(F), beta)
        ratio = _ratio(mttkrp(down, F, b), mttkrp(up, F, b))
        F[b] = F[b] * ratio ** _exponent(beta)
    return tuple(F)


def hals_step(X: Array, factors: Factors, sweeps: int = 1) -> tuple[Array, ...]:
    """f_j = max(0, f_j + (M - F G)_:j / G_jj), column by column, `sweeps` times."""
    F = [f.copy() for f in factors]
    for b in _modes(F):
        M, G = mttkrp(X, F, b), gram(F, b)
        for _, j in product(range(sweeps), range(G.shape[0])):
            if G[j, j] > 0:
                F[b][:, j] = np.maximum(0, F[b][:, j] + (M[:, j] - F[b] @ G[:, j]) / G[j, j])
    return tuple(F)


def normalise(factors: Factors) -> tuple[Array, ...]:
    """v_j *= n_j = prod_b ||u^b_j||, u^b_j /= ||u^b_j||; n_j = 0 leaves v_j."""
    norms = [np.linalg.norm(U, axis=0) for U in factors[1:]]
    n = np.prod(norms, axis=0)
    V = factors[0] * np.where(n > 0, n, 1)
    bases = zip(factors[1:], norms, strict=True)
    return V, *(U / np.where(norm > 0, norm, 1) for U, norm in bases)


def nnls_coefficients(X: Array, factors: Factors) -> Array:
    """NNLS of every sample on the Khatri-Rao of the U's; V is not used."""
    B = khatri_rao(factors[1:])
    return np.stack([nnls(B, x)[0] for x in X.reshape(X.shape[0], -1)])


def _modes(factors: Factors) -> Iterator[int]:
    """Feature factors in mode order, then V."""
    yield from range(1, len(factors))
    yield 0


def _exponent(beta: float) -> float:
    """g of Fevotte & Idier (2011)."""
    if beta < 1:
        return 1 / (2 - beta)
    return 1.0 if beta <= 2 else 1 / (beta - 1)


def _ratio(down: Array, up: Array) -> Array:
    """down / up; 1 where up = 0: that is 0/0, or the entry is zero anyway."""
    return np.where(up > 0, down / np.where(up > 0, up, 1), 1.0)


def _beta_weights(X: Array, Y: Array, beta: float) -> tuple[Array, Array]:
    """Y^(b-2) X and Y^(b-1)."""
    # X = 0 first: a Y that dies there passes through numbers whose inverse overflows.
    return _power(np.where(X > 0, Y, 0), beta - 2) * X, _power(Y, beta - 1)


def _power(Y: Array, exponent: float) -> Array:
    """Y^exponent; 0 where Y = 0: there every product of factor entries is zero."""
    return np.where(Y > 0, np.where(Y > 0, Y, 1.0) ** exponent, 0.0)


# NGE, NDTF and N2S2L (sections 2 and 3)


def nge_step(
    X: Array,
    factors: Factors,
    L_parts: tuple[Array, Array],
    alpha: float,
    q: int,
    basis: str = "exact",
    v_rule: VRule = "multiplicative",
    beta: float = 0.0,
    Ss: Array | None = None,
) -> tuple[Array, ...]:
    """One iteration, never normalised: graph j weighs w_j = prod_b ||u^b_j||^2."""
    Y = _penalties(L_parts, alpha, q, beta, Ss, factors[0].shape[1])
    F = _basis_steps(X, factors, Y, basis)
    F[0] = _v_step(X, F, Y, norms_of(F), v_rule)
    return tuple(F)


def nge_step_normalised(
    X: Array,
    factors: Factors,
    L_parts: tuple[Array, Array],
    alpha: float,
    q: int,
    basis: str = "exact",
    v_rule: VRule = "multiplicative",
    beta: float = 0.0,
    Ss: Array | None = None,
) -> tuple[Array, ...]:
    """One iteration as printed: bases, unit columns, then V with graphs of weight 1.

    A component with a zero basis column weighs 0 as in the objective: its v_j stays.
    """
    Y = _penalties(L_parts, alpha, q, beta, Ss, factors[0].shape[1])
    F = list(normalise(_basis_steps(X, factors, Y, basis)))
    alive = np.where(norms_of(F) > 0, 1.0, 0.0)
    F[0] = _v_step(X, F, Y, alive, v_rule)
    return tuple(F)


def _penalties(
    L_parts: tuple[Array, Array],
    alpha: float,
    q: int,
    beta: float,
    Ss: Array | None,
    k: int,
) -> list[Array]:
    """Y_j: alpha L(S) + beta L(Ss) for j < q, alpha L(Sp) for the others."""
    S, Sp = L_parts
    own = alpha * laplacian(S) + (0 if Ss is None else beta * laplacian(Ss))
    return [own if j < q else alpha * laplacian(Sp) for j in range(k)]


def _energy(Y: Array, v: Array) -> float:
    """v'Yv of a Laplacian, edge by edge: sum_ij S_ij (v_i - v_j)^2 / 2."""
    return float(-np.sum(Y * np.subtract.outer(v, v) ** 2) / 2)


def _basis_steps(X: Array, factors: Factors, Y: list[Array], basis: str) -> list[Array]:
    """Every U^b in turn: "exact", or "paper" (Eq. 25/54), v_j'Y v_j split."""
    F = list(factors)
    columns = list(enumerate(F[0].T))
    if basis == "exact":
        linear_plus = np.array([_energy(Y[j], v) for j, v in columns])
        linear_minus = np.zeros_like(linear_plus)
    elif basis == "paper":
        linear_plus = np.array([v @ np.maximum(Y[j], 0) @ v for j, v in columns])
        linear_minus = np.array([v @ np.maximum(-Y[j], 0) @ v for j, v in columns])
    else:
        raise ValueError(f'basis is "exact" or "paper", not {basis!r}')
    for b in range(1, len(F)):
        w = norms_of(F, b)
        down = mttkrp(X, F, b) + F[b] * (w * linear_minus)
        F[b] = F[b] * _ratio(down, F[b] @ gram(F, b) + F[b] * (w * linear_plus))
    return F


def _v_step(X: Array, factors: Factors, Y: list[Array], w: Array, rule: VRule) -> Array:
    """V column by column with penalties w_j v_j'Y_j v_j; data term at the old V."""
    V = factors[0]
    M, up = mttkrp(X, factors, 0), V @ gram(factors, 0)
    columns = range(V.shape[1])
    return np.stack(
        [_v_column(V[:, j], M[:, j], up[:, j], w[j] * Y[j], rule) for j in columns],
        axis=1,
    )


def _v_column(v: Array, linear_minus: Array, up: Array, A: Array, rule: VRule) -> Array:
    """Eq. 44, or (diag(up/v) + A) v = pull solved exactly or by Jacobi sweeps."""
    if rule == "multiplicative":
        return v * _ratio(linear_minus + np.maximum(-A, 0) @ v, up + np.maximum(A, 0) @ v)
    if rule == "m_matrix":
        return _solve(v, linear_minus, up, A)
    if rule[0] == "sweeps":
        return _jacobi(v, linear_minus, up, A, int(rule[1]))
    raise ValueError(f'v_rule is "multiplicative", "m_matrix" or ("sweeps", s), not {rule!r}')


def _solve(v: Array, linear_minus: Array, up: Array, A: Array) -> Array:
    """The system on the rows with v > 0; v itself if up = 0 there (singular).

    With s = sqrt(v / up): (1 + s A s) y = s pull, v = s y. up / v itself overflows for
    entries on their way to zero, and badly scaled rows lose digits.
    """
    rows = np.flatnonzero(v > 0)
    if np.any(up[rows] == 0):
        return v
    s = np.sqrt(v[rows] / up[rows])
    system = np.eye(len(rows)) + s[:, None] * A[np.ix_(rows, rows)] * s
    new = np.zeros_like(v)
    new[rows] = s * np.linalg.solve(system, s * linear_minus[rows])
    return np.maximum(new, 0)  # the inverse is nonnegative, but for rounding


def _jacobi(v: Array, linear_minus: Array, up: Array, A: Array, sweeps: int) -> Array:
    """x_i <- (pull_i - sum_l!=i A_il x_l) / (up_i / v_i + A_ii), started at x = v."""
    diagonal, x = np.diag(A), v
    for _ in range(sweeps):
        x = v * _ratio(linear_minus - (A - np.diag(diagonal)) @ x, up + v * diagonal)
    return x


# Graphs, dense and by brute force (end of section 3)


def knn_graph(X: Array, p: int) -> Array:
    """Edge if i is among the p nearest of j or j of i; ties by index; weight 1."""
    distance = _squared_distances(X)
    S = np.zeros_like(distance)
    _link_nearest(S, distance, list(range(len(S))), p)
    return S


def marginal_fisher(X: Array, y: Sequence[int] | NDArray[np.int64], k1: int | None, k2: int) -> tuple[Array, Array]:
    """Intrinsic: k1 nearest within the class. Penalty: k2 shortest pairs out of it.

    k1 = None is min(n_c - 1, 3); y = -1 is unlabelled and never linked; ties by (i, j).
    """
    distance = _squared_distances(X)
    labelled = [i for i in range(len(distance)) if y[i] != -1]
    S, Sp = np.zeros_like(distance), np.zeros_like(distance)
    for c in sorted({int(y[i]) for i in labelled}):
        inside = [i for i in labelled if y[i] == c]
        outside = [i for i in labelled if y[i] != c]
        _link_nearest(S, distance, inside, 3 if k1 is None else k1)
        pairs = sorted((distance[i, j], i, j) for i in inside for j in outside)
        for _, i, j in pairs[:k2]:
            Sp[i, j] = Sp[j, i] = 1
    return S, Sp


def grid(shape: Sequence[int], neighbours: int = 4) -> Array:
    """Pixels in C order; 4: one step along one axis, 8: also diagonal; weight 1."""
    cells = list(np.ndindex(*shape))
    S = np.zeros((len(cells), len(cells)))
    for (i, a), (j, b) in product(enumerate(cells), repeat=2):
        steps = [abs(s - t) for s, t in zip(a, b, strict=True)]
        S[i, j] = max(steps) == 1 and (sum(steps) == 1 or neighbours == 8)
    return S


def _squared_distances(X: Array) -> Array:
    """||x_i - x_j||^2 from differences, so that equal samples are at exactly 0."""
    return np.array([[np.sum((a - b) ** 2) for b in X] for a in X])


def _link_nearest(S: Array, distance: Array, members: list[int], p: int) -> None:
    """Link every member with its p nearest other members (fewer if there are fewer)."""
    for i in members:
        others = sorted((distance[i, j], j) for j in members if j != i)
        for _, j in others[:p]:
            S[i, j] = S[j, i] = 1
