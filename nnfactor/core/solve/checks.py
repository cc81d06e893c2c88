"""What a run is given, refused with the name of the argument and what would work; once, before the first sweep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..arguments import nonnegative, whole
from ..rules.base import Rule, leading_rule
from ..rules.hals import hals
from ..rules.m_matrix import m_matrix
from ..rules.multiplicative import multiplicative
from ..rules.projected_gradient import projected_gradient
from ..terms.base import Factors, Term, check_model, samples_of

NONNEGATIVE = {f.__name__: f for f in (hals, m_matrix, multiplicative, projected_gradient)}  # rules of such factors


def check_run(
    terms: Sequence[Term], rules: Mapping[str, Rule], factors: Factors, method: Any, limits: tuple[Any, Any, Any, Any]
) -> None:
    """Refuse a model, rules and a start that no sweep could take, and limits that end a run at once or never."""
    max_iter, tol, every, max_seconds = limits
    whole("max_iter", max_iter, 0)
    whole("every", every)
    nonnegative("tol", tol)
    if max_seconds is not None:
        nonnegative("max_seconds", max_seconds)
    _refuse_split_samples(terms)
    check_model(terms, factors)
    if not isinstance(rules, Mapping):
        raise TypeError(f"rules must be a dict of rules by name, such as {{'V': hals}}, got {rules!r}")
    if not callable(method):
        raise TypeError(f"method={method!r} must be a function, such as nnfactor.core.step, her or bmme")
    unknown = [name for name in rules if name not in factors]
    if unknown:
        raise ValueError(
            f"rules has {unknown[0]!r}, which is not in factors; they have {', '.join(map(repr, factors))}"
        )
    names = [name for term in terms for name in term.factor_names]
    batches = {name: tuple(factors[name].shape[:-2]) for name in names}
    if len(set(batches.values())) > 1 or any(len(batch) > 1 for batch in batches.values()):
        listed = ", ".join(f"{name} {tuple(factors[name].shape)}" for name in batches)
        raise ValueError(f"factors must all be (rows, k), or all (B, rows, k) with the same B; got {listed}")
    bounded = [name for name, rule in rules.items() if leading_rule(rule) in NONNEGATIVE.values()]
    least = torch.stack([factors[name].amin() for name in bounded]).tolist() if bounded else []
    for name, low in zip(bounded, least, strict=True):
        if low < 0:
            raise ValueError(f"factors[{name!r}] has entries down to {low:g}; its rule needs a start >= 0: use .abs()")


def _refuse_split_samples(terms: Sequence[Term]) -> None:
    """Refuse terms that sum over samples by themselves, where processes share the samples."""
    name, _ = samples_of(terms if isinstance(terms, Sequence) else [])
    for term in terms if name is not None else []:
        if isinstance(term, Term) and name in term.factor_names and not term.splits_samples:
            raise ValueError(
                f"{type(term).__name__} depends on {name!r}, whose rows are split over processes by Sharded data; of "
                "the terms Fit, BetaFit, L1, L2, L21 and Orthogonal can do that: leave it out, or use X.gathered()"
            )


def check_rules(terms: Sequence[Term], rules: Mapping[str, Rule]) -> None:
    """Refuse no rules, rules that are no functions, and rules of factors on which no term depends."""
    if not rules:
        raise ValueError("rules is empty: no factor would be improved; give at least one, such as {'V': hals}")
    names = {name for term in terms for name in term.factor_names}
    for name, rule in rules.items():
        if not callable(rule):
            known = f"nnfactor.core.{rule}" if rule in NONNEGATIVE else f"one of {', '.join(NONNEGATIVE)}"
            raise TypeError(f"rules[{name!r}] is {rule!r}; it must be a function: use {known}")
        if name not in names:
            raise ValueError(f"rules has {name!r}, on which no term depends; leave it out")
