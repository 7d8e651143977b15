"""Oracles of the modules drift, holm, mix, rank and split."""

import numpy as np
import scipy.special
import scipy.stats
import ssrm_test.ssrm_test
import statsmodels.stats.multitest
import statsmodels.stats.oaxaca


def stability_index(reference, current):
    """PSI over the reference's deciles, as two relative entropies of scipy."""
    edges = np.unique(np.quantile(reference[0], np.arange(1, 10) / 10, weights=reference[1], method="inverted_cdf"))
    if len(edges) < 2:
        return None

    def shares(sample):
        bins = np.searchsorted(edges, sample[0], side="left")
        return np.maximum(np.bincount(bins, sample[1], len(edges) + 1) / sample[1].sum(), 0.0001)

    was, now = shares(reference), shares(current)
    return (scipy.special.rel_entr(was, now) + scipy.special.rel_entr(now, was)).sum()


def drift():
    """scipy's Wasserstein distance and entropies, numpy's weighted quantiles."""
    cases = []
    for seed, (counts, shift, scale) in enumerate(
        [((200, 200), 0, 1), ((500, 300), 0.5, 1), ((50, 1000), 0, 3), ((20, 20), 4, 0.1), ((1, 7), 1, 1)]
    ):
        random = np.random.default_rng(seed)
        for weighted in [False, True]:
            reference = [random.normal(10, 2, counts[0]).round(3), np.ones(counts[0])]
            current = [random.normal(10 + shift, 2 * scale, counts[1]).round(3), np.ones(counts[1])]
            if weighted:
                # Buckets: few distinct values, and weights that are no whole numbers, some of them 0.
                for side in [reference, current]:
                    side[0] = side[0].round(0)
                    side[1] = random.integers(0, 9, len(side[0])) / 4.0
                    side[1][0] = 1.0
            quarters = np.quantile(reference[0], [0.25, 0.75], weights=reference[1], method="inverted_cdf")
            cases.append(
                {
                    "reference": reference,
                    "current": current,
                    "wasserstein": scipy.stats.wasserstein_distance(reference[0], current[0], reference[1], current[1]),
                    "interquartile_range": quarters[1] - quarters[0],
                    "stability_index": stability_index(reference, current),
                }
            )
    return cases


def holm():
    """statsmodels."""
    cases = []
    for seed, count in enumerate([1, 2, 3, 7, 20]):
        p = np.random.default_rng(seed).beta(0.3, 1, count)
        p[-1] = p[0]
        cases.append({"p": p, "adjusted": statsmodels.stats.multitest.multipletests(p, method="holm")[1]})
    return cases


def mix():
    """statsmodels: the two-fold decomposition of Oaxaca and Blinder, in which a regression on the strata with equal weights for
    both sides is Kitagawa's."""
    cases = []
    for seed in range(4):
        random = np.random.default_rng(seed)
        strata = random.integers(3, 6)
        stratum = np.concatenate([np.tile(np.arange(strata), 5), random.integers(0, strata, 60), random.integers(0, 2, 60)])
        # Both sides have every stratum, and one of them more of the first two.
        is_before = np.concatenate([np.arange(5 * strata) // strata % 2 == 0, np.arange(120) < 60])
        figure = random.normal(10 + 5 * stratum + np.where(is_before, 0, seed), 1).round(4)
        dummies = (stratum[:, None] == np.arange(strata)).astype(float)
        data = np.column_stack([dummies, is_before.astype(float)])
        model = statsmodels.stats.oaxaca.OaxacaBlinder(figure, data, strata, hasconst=True, swap=False)
        found = model.two_fold(two_fold_type="self_submitted", submitted_weight=0.5)

        def groups(side):
            return [{"weight": (side & (stratum == s)).sum(), "mean": figure[side & (stratum == s)].mean()} for s in range(strata)]

        cases.append(
            {
                "before": groups(is_before),
                "after": groups(~is_before),
                "within": found.params[0],
                "mix": found.params[1],
                "difference": found.params[2],
            }
        )
    return cases


def shifts(first, second, confidence):
    """The interval of the shifts that scipy's test does not reject, each tried between two neighbouring differences."""
    differences = np.unique(np.subtract.outer(second, first))
    gaps = np.concatenate([[differences[0] - 1], (differences[1:] + differences[:-1]) / 2, [differences[-1] + 1]])
    not_rejected = [scipy.stats.mannwhitneyu(first + gap, second).pvalue > 1 - confidence for gap in gaps]
    if not_rejected[0]:
        return None
    return [differences[not_rejected.index(True) - 1], differences[len(gaps) - 1 - not_rejected[::-1].index(True)]]


def rank():
    """scipy's Mann–Whitney test, and the shifts that it does not reject."""
    cases = []
    shapes = [(1, 1), (3, 3), (5, 5), (4, 9), (8, 12), (8, 300), (9, 9), (15, 12), (40, 25)]
    for seed, (left, right) in enumerate(shapes):
        random = np.random.default_rng(seed)
        for digits in [6, 0]:
            first = random.normal(50, 3, left).round(digits)
            second = random.normal(50 + seed / 2, 3, right).round(digits)
            test = scipy.stats.mannwhitneyu(first, second)
            cases.append(
                {
                    "first": first,
                    "second": second,
                    "u": test.statistic,
                    # NaN when all are equal.
                    "p": test.pvalue if np.isfinite(test.pvalue) else 1.0,
                    "estimate": np.median(np.subtract.outer(second, first)),
                    "confidence": 0.95,
                    "interval": shifts(first, second, 0.95) if left * right < 1000 else None,
                    "has_interval": left * right < 1000,
                }
            )
    return cases


def split():
    """Optimizely's ssrm-test, by the authors of the paper. It names numpy's infinity as numpy 1 did."""
    np.Inf = np.inf
    cases = []
    for seed, (weights, real) in enumerate(
        [([1, 1], [1, 1]), ([9, 1], [9, 1]), ([1, 1], [1.2, 1]), ([90, 10], [85, 15]), ([5, 3, 2], [5, 3, 2]), ([5, 3, 2], [4, 3, 3])]
    ):
        random = np.random.default_rng(seed)
        weights, real = np.array(weights, float), np.array(real, float)
        for concentration in [100, 10_000]:
            looks = [random.multinomial(size, real / real.sum()) for size in [1, 5, 0, 40, 300, 1000, 4000, 200]]
            p = ssrm_test.ssrm_test.sequential_p_values(looks, weights / weights.sum(), dirichlet_concentration=concentration)
            cases.append({"weights": weights, "concentration": concentration, "looks": looks, "p": p})
    return cases
