"""Oracles of the modules change and steady."""

import numpy as np
import otava.analysis
import pymser.pymser
import ruptures
import scipy.stats
import statsmodels.tsa.stattools

from intervals import autoregression


def steps(random, levels, length, noise):
    """A series of levels, each for the same number of points."""
    return np.concatenate([level + random.normal(0, noise, length) for level in levels]).round(6)


def change():
    """apache-otava with sides of any length; scipy's t test between the segments that it found, since otava passes deviations of
    another divisor to it; and ruptures for where the given number of steps is."""
    cases = []
    tester = otava.analysis.TTestSignificanceTester(0.001)
    for seed, (levels, length, noise) in enumerate(
        [
            ([10], 200, 1),
            ([10, 14], 60, 1),
            ([10, 11.5, 8, 12], 40, 0.5),
            ([100, 130, 100], 25, 8),
            ([0.5, 0.65, 0.65, 0.4], 50, 0.03),
            ([10, 10.4], 100, 0.3),
            ([5, 50, 20, 80, 10], 30, 2),
        ]
    ):
        series = steps(np.random.default_rng(seed), levels, length, noise)
        for window, least in [(30, 0.0), (50, 0.0), (50, 0.1)]:
            found, _ = otava.analysis.compute_change_points(list(series), window, 0.001, least)
            edges = [0, *[point.index for point in found], len(series)]
            sides = [(series[a:b], series[b:c]) for a, b, c in zip(edges, edges[1:], edges[2:])]
            jumps = sum(left != right for left, right in zip(levels, levels[1:]))
            cases.append(
                {
                    "series": series,
                    "window": window,
                    "max_p": 0.001,
                    "min_change": least,
                    "points": [
                        {
                            "index": point.index,
                            "before": stats.mean_1,
                            "after": stats.mean_2,
                            "change": stats.change_magnitude(),
                            "p": scipy.stats.ttest_ind(*side).pvalue,
                        }
                        for point, side in zip(found, sides)
                        # Computed again: otava's own may be older than the last change of a neighbour.
                        for stats in [tester.compare(*side)]
                    ],
                    "ruptures": ruptures.Dynp("l2", jump=1).fit(series).predict(jumps)[:-1] if jumps else [],
                }
            )
    return cases


def slope(series, confidence):
    """scipy's line, with the points that statsmodels' correlation of neighbouring residuals makes of those that there are."""
    count = len(series)
    line = scipy.stats.linregress(np.arange(count), series)
    residuals = series - line.intercept - line.slope * np.arange(count)
    correlation = max(statsmodels.tsa.stattools.acf(residuals, nlags=1)[1], 0)
    worth = count * (1 - correlation) / (1 + correlation)
    error = line.stderr * ((count - 2) / (worth - 2)) ** 0.5
    scale = (count - 1) / series.mean()
    reach = scipy.stats.t.ppf(0.5 + confidence / 2, worth - 2) * error * abs(scale)
    change = line.slope * scale
    return {"level": series.mean(), "per_step": line.slope, "change": change, "interval": [change - reach, change + reach]}


def steady():
    """pymser's MSER, and slopes."""
    cases = []
    for seed, (coefficient, length, start, drift) in enumerate(
        [(0, 60, 0, 0), (0, 300, -30, 0), (0.7, 300, -10, 0), (0.3, 203, 20, 0.02), (-0.5, 150, -5, 0), (0.9, 600, 0, 0.01), (0, 100, 0, 1)]
    ):
        random = np.random.default_rng(seed)
        seconds = np.arange(length)
        series = (60 + autoregression(random, coefficient, length) + start * np.exp(-seconds / 12) + drift * seconds).round(6)
        # Those that leave five batches over.
        errors = pymser.pymser.calculate_MSEm(series, batch_size=5)[: length // 5 - 4]
        cases.append(
            {
                "series": series,
                "discard": pymser.pymser.MSERm_index(errors, batch_size=5),
                "confidence": 0.95,
                "slope": slope(series, 0.95),
            }
        )
    return cases
