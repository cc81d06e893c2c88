"""Update rules of one factor, `(F, block) -> F`: one rule a file."""
