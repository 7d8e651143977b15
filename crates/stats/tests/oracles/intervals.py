"""Oracles of the modules bootstrap, clustered, ratio, sequence, stratified, student and tail."""

import math

import arch.bootstrap
import confseq.boundaries
import gbstats.frequentist.tests as growthbook
import gbstats.models.statistics as statistics
import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats
import statsmodels.api


def autoregression(random, coefficient, length):
    """A stationary series with this correlation of neighbours."""
    values = [random.normal() / math.sqrt(1 - coefficient**2)]
    while len(values) < length:
        values.append(coefficient * values[-1] + random.normal())
    return np.array(values)


def bootstrap():
    """arch: Politis and White's block length, and percentile intervals of its own moving-block bootstrap, which agree with ours
    up to chance."""
    cases = []
    for seed, (coefficient, length) in enumerate([(0.0, 16), (0.0, 100), (0.3, 200), (0.7, 300), (0.9, 500), (0.5, 800)]):
        series = (50 + 3 * autoregression(np.random.default_rng(seed), coefficient, length)).round(6)
        block = float(arch.bootstrap.optimal_block_length(series)["circular"].iloc[0])
        case = {"series": series, "block": block, "intervals": {}}
        for name, statistic in [("mean", np.mean), ("median", np.median)] if length >= 100 else []:
            resamples = arch.bootstrap.MovingBlockBootstrap(math.ceil(block), series, seed=seed)
            case["intervals"][name] = resamples.conf_int(statistic, reps=4000, method="percentile", size=0.9).ravel()
        cases.append(case)
    return cases


def student():
    """scipy: the interval of Student's t."""
    cases = []
    for seed, count in enumerate([2, 3, 5, 10, 30, 200]):
        trials = np.random.default_rng(seed).normal(40 + seed, 1 + seed, count).round(6)
        error = scipy.stats.sem(trials)
        for confidence in [0.5, 0.9, 0.95, 0.999]:
            interval = scipy.stats.t.interval(confidence, count - 1, loc=trials.mean(), scale=error)
            cases.append(
                {"trials": trials, "confidence": confidence, "mean": trials.mean(), "error": error, "interval": interval}
            )
    return cases


def units(random, count, speed):
    """Tokens and seconds of sessions, some long and some short, the long ones slower."""
    seconds = random.lognormal(2, 1, count)
    tokens = seconds * (speed - 2 * np.log(seconds) + random.normal(0, 4, count))
    return np.stack([tokens, seconds], axis=1).round(4)


def statistic(arm):
    """The sums that gbstats takes."""
    tokens, seconds = arm.T
    return statistics.RatioStatistic(
        n=len(arm),
        m_statistic=statistics.SampleMeanStatistic(n=len(arm), sum=tokens.sum(), sum_squares=(tokens**2).sum()),
        d_statistic=statistics.SampleMeanStatistic(n=len(arm), sum=seconds.sum(), sum_squares=(seconds**2).sum()),
        m_d_sum_of_products=(tokens * seconds).sum(),
    )


def compared(arms, make):
    """Absolute and relative difference by a test of gbstats."""
    answers = {}
    for kind in ["absolute", "relative"]:
        test = make(statistic(arms[0]), statistic(arms[1]), kind)
        answers[kind] = {
            "value": test.point_estimate,
            "variance": test.variance,
            "degrees_of_freedom": test.dof,
            "interval": test.confidence_interval,
            "p": test.p_value,
        }
    return answers


def arms():
    """Pairs of arms, from few units to many."""
    for seed, (count, faster) in enumerate([(5, 0), (40, 0), (100, 1), (250, 0), (250, 4)]):
        random = np.random.default_rng(seed)
        yield units(random, count, 48), units(random, count + count // 3, 48 + faster)


def ratio():
    """gbstats (GrowthBook): variances by the delta method, and Welch's interval."""

    def test(a, b, kind):
        return growthbook.TwoSidedTTest(a, b, growthbook.FrequentistConfig(alpha=0.05, difference_type=kind))

    return [
        {
            "arms": pair,
            "ratios": [{"value": arm.mean, "variance": arm.variance / arm.n} for arm in map(statistic, pair)],
            "confidence": 0.95,
            **compared(pair, test),
        }
        for pair in arms()
    ]


def fully_interacted(residuals, second, strata):
    """statsmodels: the effect of the second arm in a regression with centred strata and their interactions, its variance (HC2) from
    units within strata, and the variance of the effects between strata."""
    dummies = (strata[:, None] == np.unique(strata)[1:]).astype(float)
    centred = dummies - dummies.mean(axis=0)
    columns = np.column_stack([np.ones(len(second)), second, centred, second[:, None] * centred])
    fit = statsmodels.api.OLS(residuals, columns).fit(cov_type="HC2")
    effects = centred @ fit.params[2 + dummies.shape[1] :]
    return fit.params[1], fit.bse[1] ** 2 + np.mean(effects**2) / len(second)


def stratified():
    """statsmodels: a mean over strata is a coefficient of a fully interacted regression, and so is the linearised residual of a
    ratio; numpy weights units for the ratios."""
    cases = []
    for seed, (count, levels, faster) in enumerate([(40, 1, 0), (120, 2, 1), (400, 4, 3), (900, 3, 0)]):
        random = np.random.default_rng(70 + seed)
        strata = np.arange(count) % levels
        second = (random.random(count) < 0.4).astype(float)
        sessions = units(random, count, 40) * (1 + strata)[:, None] ** [0.5, 1]
        sessions[:, 0] += faster * second * sessions[:, 1]
        sessions = sessions.round(4)
        ratios, residuals = [], np.zeros(count)
        for arm in (0, 1):
            mine = second == arm
            share = [np.mean(strata == s) / np.sum(mine & (strata == s)) for s in strata]
            weights = np.where(mine, share, 0)
            tokens, seconds = weights @ sessions
            ratios.append(tokens / seconds)
            residuals[mine] = ((sessions[:, 0] - ratios[arm] * sessions[:, 1]) / seconds)[mine]
        relation = ratios[1] / ratios[0]
        scale = np.where(second == 1, 1 / ratios[0], relation / ratios[0])
        rest, variance = fully_interacted(residuals, second, strata)
        assert abs(rest) < 1e-9
        cases.append(
            {
                "units": [[*unit, s, arm] for unit, s, arm in zip(sessions, strata.astype(float), second)],
                "ratios": ratios,
                "difference": [ratios[1] - ratios[0], variance],
                "relative": [relation - 1, fully_interacted(residuals * scale, second, strata)[1]],
            }
        )
    return cases


def sequence():
    """gbstats: interval and p value of two arms. confseq: the boundary of the same mixture for unit variance, two-sided and
    one-sided; the one-sided one is exact where the paper's closed form is an upper bound. scipy: the best rho, by Lambert's W."""
    cases = []
    for pair in arms():
        for tuning in [100, 5000]:

            def test(a, b, kind):
                config = growthbook.SequentialConfig(alpha=0.05, difference_type=kind, sequential_tuning_parameter=tuning)
                return growthbook.SequentialTwoSidedTTest(a, b, config)

            rho = test(statistic(pair[0]), statistic(pair[1]), "absolute").rho
            cases.append({"arms": pair, "confidence": 0.95, "rho": rho, **compared(pair, test)})
    boundaries = []
    for alpha in [0.01, 0.05, 0.2]:
        for at in [100, 10_000]:
            # The rule by which confseq chooses its own parameter, the inverse of rho squared.
            parameter = at / (2 * math.log(1 / alpha) + math.log(1 + 2 * math.log(1 / alpha)))
            one_sided = at / (2 * math.log(1 / (2 * alpha)) + math.log(1 + 2 * math.log(1 / (2 * alpha))))
            best = -scipy.special.lambertw(-(alpha**2) / math.e, -1).real - 1
            times = [2, 10, 100, 1_000, 1_000_000]

            def boundary(is_one_sided):
                sums = confseq.boundaries.normal_mixture_bound(times, alpha, at, alpha, is_one_sided)
                return np.array(sums) / times

            boundaries.append(
                {
                    "alpha": alpha,
                    "tightest_at": at,
                    "best_rho": math.sqrt(best / at),
                    "times": times,
                    "two_sided": {"rho": parameter**-0.5, "margins": boundary(False)},
                    "one_sided": {"rho": one_sided**-0.5, "margins": boundary(True)},
                }
            )
    return [{"arms": cases, "boundaries": boundaries}]


def tail():
    """scipy: the binomial distribution by which LoadGen decides, asked one number of calls after the other."""
    needed = []
    for percentile in [0.5, 0.9, 0.95, 0.99, 0.999]:
        for confidence in [0.9, 0.99]:
            for over in [0, 1, 2, 10]:
                calls = over + 1
                while scipy.stats.binom.cdf(over, calls, 1 - percentile) > 1 - confidence:
                    calls += 1
                needed.append({"percentile": percentile, "confidence": confidence, "over": over, "calls": calls})
    bounds = []
    for seed, count in enumerate([64, 100, 662, 1000, 2000]):
        times = np.random.default_rng(seed).lognormal(0, 1, count).round(6)
        percentile = 0.9 if count < 662 else 0.99
        above = 1
        while scipy.stats.binom.cdf(above + 1, count, 1 - percentile) <= 0.01:
            above += 1
        bounds.append({"times": times, "percentile": percentile, "bound": np.sort(times)[count - above], "above": above - 1})
    return [{"needed": needed, "bounds": bounds}]


def effective(with_it, sizes, confidence):
    """Korn and Graubard's number of independent calls, from the jackknife variance of the share, with divisor n."""
    calls, units = sizes.sum(), len(sizes)
    if calls == units:
        return calls
    share = with_it.sum() / calls
    without = np.array([np.delete(with_it, unit).sum() / np.delete(sizes, unit).sum() for unit in range(units)])
    squares = (without - share) ** 2
    variance = squares.sum() * ((units - 1) / units) ** 2
    equal = calls**2 / (sizes**2).sum()
    if variance > 0:
        equal = max(2, min(equal, 3 * squares.sum() ** 2 / (squares**2).sum()))
    worth = min(calls, share * (1 - share) / variance) if 0 < share < 1 and variance > 0 else calls
    t = scipy.stats.t.ppf(0.5 + confidence / 2, [calls - 1, equal - 1])
    return min(calls, worth * (t[0] / t[1]) ** 2)


def order_statistics(values, sizes, below, share, confidence):
    """The values between which a quantile lies. If each call is a separate unit, scipy's own test finds them. Otherwise the
    binomial distribution of as many calls as those are worth finds them, as the regularised beta function."""
    values = np.sort(values)
    if (sizes == 1).all():
        interval = scipy.stats.quantile_test(values, p=share).confidence_interval(confidence)
        return [bound if np.isfinite(bound) else None for bound in interval]
    calls, tail = len(values), (1 - confidence) / 2
    worth = effective(below, sizes, confidence)

    def rank(beyond, low, high):
        return scipy.optimize.brentq(beyond, low, high, xtol=1e-12) if beyond(low) * beyond(high) < 0 else None

    lowest = rank(lambda rank: scipy.special.betainc(worth - rank + 1, rank, 1 - share) - tail, 1, worth + 1 - 1e-9)
    highest = rank(lambda rank: scipy.special.betainc(rank, worth - rank + 1, share) - tail, 1e-9, worth)
    return [
        None if lowest is None else values[math.floor((lowest - 1) * calls / worth)],
        None if highest is None else values[math.ceil(highest * calls / worth) - 1],
    ]


def clustered():
    """scipy: intervals of quantiles and of shares."""
    cases = []
    for seed, (units, calls) in enumerate([(60, 1), (400, 1), (16, 6), (80, 4), (200, 9)]):
        random = np.random.default_rng(seed)
        sizes = random.geometric(1 / calls, units)
        unit = np.repeat(np.arange(units), sizes)
        values = np.exp(0.4 * random.normal(size=units)[unit] + 0.4 * random.normal(size=len(unit))).round(6)
        failed = random.random(len(unit)) < (0.2 * (random.random(units) < 0.5))[unit]
        case = {"values": values, "units": unit, "failed": failed, "quantiles": [], "shares": []}
        for confidence in [0.9, 0.95, 0.999]:
            for share in [0.05, 0.5, 0.95]:
                quantile = np.quantile(values, share, method="inverted_cdf")
                below = np.bincount(unit, values <= quantile)
                bounds = order_statistics(values, sizes, below, share, confidence)
                found = {"share": share, "confidence": confidence, "quantile": quantile, "bounds": bounds}
                case["quantiles"].append(found)
            fails = np.bincount(unit, failed)
            worth = effective(fails, sizes, confidence)
            with_it, tail = fails.sum() / sizes.sum() * worth, (1 - confidence) / 2
            lower = scipy.stats.beta.ppf(tail, with_it, worth - with_it + 1)
            upper = scipy.stats.beta.ppf(1 - tail, with_it + 1, worth - with_it)
            case["shares"].append({"confidence": confidence, "interval": [lower, upper]})
        cases.append(case)
    return cases
