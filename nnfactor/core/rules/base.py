"""What a rule is, several rules in turn, and what rules need of a block."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor

from ..block import Block, Quad, accumulate
from ..factors import as_factor

Rule = Callable[[Tensor, Block], Tensor]  # one update of one factor: (F, block) -> the next F


def compose(*rules: Rule) -> Rule:
    """Apply rules in turn to the same block, without a new product with the data: `compose(m_matrix, hals)`."""
    return partial(_apply_in_turn, rules)  # a value: equal rules make an equal composition


def leading_rule(rule: Rule) -> Rule:
    """Return the function that is applied first: of a composition its first rule, without settings."""
    return list_rules(rule)[0][0]


def last_rule(rule: Rule) -> Rule:
    """Return the rule that is applied last, with its settings."""
    return rule.args[0][-1] if isinstance(rule, partial) and rule.func is _apply_in_turn else rule


def list_rules(rule: Rule) -> list[tuple[Rule, dict[str, Any]]]:
    """List the functions that are applied, of a composition all of its rules, each with its settings."""
    if not isinstance(rule, partial):
        return [(rule, {})]
    if rule.func is _apply_in_turn:
        return [one for part in rule.args[0] for one in list_rules(part)]
    return [(function, {**settings, **rule.keywords}) for function, settings in list_rules(rule.func)]


def _apply_in_turn(rules: tuple[Rule, ...], F: Tensor, block: Block) -> Tensor:
    for rule in rules:
        F = rule(F, block)
    return F


def require_quadratic(block: Block, rule: str) -> None:
    """Refuse a block that holds at the current factor only."""
    if not block.quadratic:
        raise ValueError(
            f"solver {rule!r} needs a quadratic objective; for beta-divergences (loss='kullback-leibler' or a number) "
            "only solver='multiplicative' works"
        )


def collect_linear(block: Block, separable: Sequence[Quad], F: Tensor) -> Tensor:
    """Compute `linear_minus - linear_plus - sum sign A F G` over quads that do not mix columns.

    The answer may be the block's own tensor: never write into it.
    """
    total = torch.zeros_like(F) if block.linear_minus is None else block.linear_minus.expand_as(F)
    if block.linear_plus is not None:
        total = total - block.linear_plus
    elif separable:
        total = total.clone()
    for q in separable:
        accumulate(total, [q], F, alpha=-q.sign)
    return as_factor(total)


def split_gram(block: Block, F: Tensor, rule: str, both: bool = False) -> tuple[Tensor, list[Quad]]:
    """Return the net Gram matrix `(..., k, k)`, of any sign, and the other quads.

    Those never mix columns, but for quads with rows and a Gram matrix, which are refused unless a rule takes `both`.
    """
    require_quadratic(block, rule)
    is_gram = lambda q: q.mixes_columns and q.row_matrix is None
    mixing, rest = ([q for q in block.quads if is_gram(q) == wanted] for wanted in (True, False))
    if not both and any(q.mixes_columns for q in rest):
        raise ValueError(f"{rule} cannot take a quad with both rows and a Gram matrix; use 'multiplicative'")
    k = F.shape[-1]
    grams = [q.column_matrix if q.sign > 0 else -q.column_matrix for q in mixing]
    return (reduce(torch.add, grams) if grams else F.new_zeros(k, k)).expand(*F.shape[:-2], k, k), rest


def bound_curvature(gram_bound: Tensor, separable: Sequence[Quad], F: Tensor) -> Tensor:
    """Bound half the second derivative from above, `(..., 1 or n, k)`.

    The sum of `gram_bound (..., 1, k)`, the weights of rows and columns, and 2 D for each graph (D - S <= 2 D).
    """
    bound = gram_bound
    if separable:
        rows = F.shape[-2] if any(q.row_matrix is not None for q in separable) else 1
        bound = as_factor(bound.expand(*F.shape[:-2], rows, F.shape[-1]).clone())
    for q in separable:
        sign = 1 if q.couples_rows else q.sign
        bound[..., q.columns or slice(None)].add_(q.curvature(F), alpha=sign)
    return bound
