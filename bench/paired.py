"""Comparing two kinds of turns that follow each other in pairs: the arithmetic of `crates/bench/src/qos/turns.rs`, whose head says
why it is done like this, and of `middle` in `measure.rs` beside it, for measurements that are scripts.

A turn has a kind, true or false, and a value; the ratio is that of the kind `true` to the other."""

import math
import statistics


def is_first_kind(turn):
    """Whether a turn is of the kind `true`: the first or the second of its pair, by the sequence of Thue and Morse."""
    return ((turn // 2).bit_count() + turn) % 2 == 1


def middle(ratios):
    """The narrowest interval of the median with a certainty of at least 95 %; of fewer than six ratios all."""
    ordered, n = sorted(ratios), len(ratios)
    # So many ratios are below the median with this probability: as heads among n coins.
    below = lambda k: sum(math.comb(n, i) for i in range(k)) / 2 ** n
    inner = max((k for k in range(1, n // 2 + 1) if 1 - 2 * below(k) >= 0.95), default=1)
    return ordered[inner - 1], ordered[n - inner]


def summed_up(ratios):
    return {"median": statistics.median(ratios), "interval": middle(ratios), "pairs": ratios}


def unlike(kinds, values):
    """The kind `true` relative to the other, pair by pair."""
    turns = list(zip(kinds, values))
    pairs = zip(turns[::2], turns[1::2])
    return summed_up([a / b if kind else b / a for (kind, a), (_, b) in pairs])


def alike(kinds, values):
    """The last turn of a pair and the first of the next, where they are of one kind, the one relative to the other by turns."""
    turns = list(zip(kinds, values))
    borders = [(a, b) for (one, a), (other, b) in zip(turns[1::2], turns[2::2]) if one == other]
    return summed_up([a / b if n % 2 == 0 else b / a for n, (a, b) in enumerate(borders)])
