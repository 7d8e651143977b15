"""Made-up calls as a sink delivers them, some of them several times, and sums over calls in Python."""

import collections
import datetime
import functools
import json
import random
import uuid

CALLS = 4000
SESSIONS = 400
# The versions of the columns of an older and of a newer program.
OLDER, NEWER = 60, 80
HOUR = 3_600_000
SINCE = int(datetime.datetime(2026, 11, 17, 6, 30, 0, 250_000, datetime.UTC).timestamp() * 1000)
UNTIL = SINCE + 72 * HOUR
# Columns that the older program did not have.
NEW_COLUMNS = ("cost_usd", "cost_unavailable", "team", "concurrency")
NAMES = {
    "cluster": ["eu", "us", None],
    "namespace": ["agents", "batch"],
    "team": ["search", "ads", "the boss's", "ops (night, day)", None],
    "agent": ["coder", "reviewer", "ünder/study & co", None],
    "user": [f"u{number}" for number in range(30)] + [None],
    "upstream": ["openai", "anthropic", "engine-1"],
    "model": ["gpt-4.1", "claude-opus", "llama 3.3 (8B)", "unpriced-1"],
}
FAILURES = ["upstream_reset", "error_event", "http_error", "timeout", "rejected", "unreachable", "drained"]
REASONS = ["no_price", "service_tier", "modality"]


def made():
    """Returns the rows of all deliveries, in batches."""
    dice = random.Random(7)
    rows = [made_call(dice) for _ in range(CALLS)]
    again = [dict(row) for row in rows if dice.random() < 0.3]
    older = [without(row, NEW_COLUMNS) | {"schema_version": OLDER} for row in rows if dice.random() < 0.1]
    return [rows[: CALLS // 2], older, rows[CALLS // 2 :], again[: len(again) // 2], again]


def without(row, columns):
    return {name: value for name, value in row.items() if name not in columns}


def made_call(dice):
    session = dice.randrange(SESSIONS)
    # Half of the calls of a session overlap.
    began = random.Random(session).randrange(SINCE - 100 * HOUR, UNTIL + 20 * HOUR)
    started = began + dice.randrange(60_000) if dice.random() < 0.5 else dice.randrange(SINCE - 100 * HOUR, UNTIL + 20 * HOUR)
    row = {name: dice.choice(names) for name, names in NAMES.items()}
    row |= {
        "schema_version": NEWER,
        "id": str(uuid.UUID(int=dice.getrandbits(128), version=4)),
        "started_at": written(started),
        "operation_class": dice.choices(["generation", "embedding", "other"], [90, 6, 4])[0],
        "outcome": dice.choice(FAILURES) if dice.random() < 0.12 else dice.choices(["complete", "client_cancelled"], [95, 5])[0],
        "session": None if dice.random() < 0.1 else f"run/{session}'s",
        "trace_id": None if dice.random() < 0.2 else f"{dice.getrandbits(128):032x}",
        "model_requested": row["model"],
        "pod": f"agent-{dice.randrange(3)}" if dice.random() < 0.8 else None,
        "instance": f"host-{dice.randrange(2)}",
        "warm_up": dice.random() < 0.05,
        "duration_seconds": round(dice.lognormvariate(1, 1), 6),
        "concurrency": dice.randrange(1, 30),
        "stalls": dice.randrange(3),
    }
    if row["outcome"] in FAILURES:
        row |= {"error_type": dice.choice(["overloaded", "reset", None]), "status": dice.choice([200, 429, 500, None])}
        if dice.random() < 0.5:
            row["model"] = None
    if dice.random() < 0.02:
        row["model"] = row["model_requested"] = None
    with_usage(row, dice)
    return {name: value for name, value in row.items() if value is not None}


def with_usage(row, dice):
    tokens = dice.choices(["reported", "normalised", None], [80, 10, 10])[0]
    if tokens:
        row |= {f"{tokens}_input_tokens": dice.randrange(1, 90_000), f"{tokens}_output_tokens": dice.randrange(1, 4_000)}
    if tokens == "reported":
        row |= {"normalised_input_tokens": dice.randrange(90_000), "normalised_output_tokens": dice.randrange(4_000)}
    if tokens == "reported" and dice.random() < 0.7:
        row["reported_cached_input_tokens"] = dice.randrange(row["reported_input_tokens"])
    if tokens and row["model"] != "unpriced-1" and dice.random() < 0.95:
        row["cost_usd"] = dice.randrange(1, 10**9) / 1e9
    else:
        row["cost_unavailable"] = dice.choice(REASONS) if tokens else "no_tokens"
    if tokens and row["outcome"] not in FAILURES:
        ttft = round(min(dice.lognormvariate(-0.5, 1), row["duration_seconds"] * 0.8), 6)
        row |= {"ttft_seconds": ttft, "ttft_upstream_seconds": ttft * 0.9, "last_token_seconds": row["duration_seconds"]}
        if dice.random() < 0.8:
            row["output_tokens_per_second"] = dice.lognormvariate(3.5, 0.8)


def written(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03}"


@functools.cache
def milliseconds(text):
    moment = datetime.datetime.fromisoformat(text.replace(" ", "T").removesuffix("Z")).replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1000)


def each_once(batches):
    """Returns the calls of all deliveries, each with the columns of its newest version."""
    newest = {}
    for row in (row for batch in batches for row in batch):
        key = (row["started_at"], row["id"])
        if key not in newest or newest[key]["schema_version"] < row["schema_version"]:
            newest[key] = row
    return list(newest.values())


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


# The names of a call, as the dashboards have them.
def model(row):
    return row.get("model", row.get("model_requested"))


def named(column):
    return lambda row: row.get(column, "unknown")


NAME_OF = {name: named(name) for name in ("cluster", "namespace", "team", "agent", "user", "upstream", "session")}
NAME_OF |= {
    "pod": lambda row: row.get("pod", row.get("instance", "unknown")),
    "model": lambda row: "unknown" if model(row) is None else model(row),
    "outcome": lambda row: row.get("outcome", "complete"),
    "reason": named("cost_unavailable"),
}


def selected(rows, chosen, since=SINCE, until=UNTIL, end_counts=True):
    """Returns the calls of a time that have one of the chosen names of each variable."""
    within = lambda at: since <= at < until + end_counts  # noqa: E731
    found = [row for row in rows if within(milliseconds(row["started_at"]))]
    return [row for row in found if all(NAME_OF[name](row) in names for name, names in chosen.items())]


def failed(row):
    return row.get("outcome", "complete") not in ("complete", "client_cancelled")


def tokens(row, kind):
    return row.get(f"reported_{kind}_tokens", row.get(f"normalised_{kind}_tokens"))


def unpriced(row):
    return "cost_usd" not in row and (tokens(row, "input") is not None or tokens(row, "output") is not None)


def total(values):
    """Returns the sum of the known values; `None` if none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def cost(rows):
    nano = total(round(row["cost_usd"] * 1e9) if "cost_usd" in row else None for row in rows)
    return None if nano is None else nano / 1e9


def share(part, whole):
    return None if part is None or not whole else part / whole


def quantile(level, values):
    """The quantile without interpolation, as ClickHouse's quantileExact takes it."""
    ordered = sorted(value for value in values if value is not None)
    return ordered[int(level * len(ordered))] if ordered else None


def by_session(rows):
    found = collections.defaultdict(list)
    for row in rows:
        found[row["session"]].append(row)
    return found


def steady(rows, column):
    return [row[column] for row in rows if column in row and not row.get("warm_up")]


def percentile(level, column):
    return lambda rows: quantile(level, steady(rows, column))


def of_sessions(figure):
    return lambda rows: figure(list(by_session(rows).values()))


def mean(values):
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def micros(row):
    """Returns the start and the end of a call in microseconds since 1970."""
    begin = milliseconds(row["started_at"]) * 1000
    return begin, begin + round(row["duration_seconds"] * 1e6)


def model_seconds(rows):
    """Returns the seconds with a call in flight."""
    reached = spent = 0
    for begin, end in sorted(map(micros, rows)):
        spent += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return spent / 1e6


def wall_seconds(rows):
    return (max(end for _, end in map(micros, rows)) - min(begin for begin, _ in map(micros, rows))) / 1e6


def mean_tps(rows):
    timed = [row for row in rows if "output_tokens_per_second" in row]
    timed = [(row["output_tokens_per_second"], row["last_token_seconds"] - row["ttft_seconds"]) for row in timed]
    return share(sum(speed * seconds for speed, seconds in timed), sum(seconds for _, seconds in timed))


# The columns of panels whose values add up over groups of calls.
SUMS = {
    "calls": len,
    "failed": lambda rows: sum(map(failed, rows)),
    "unpriced": lambda rows: sum(map(unpriced, rows)),
    "cost": cost,
    "input": lambda rows: total(tokens(row, "input") for row in rows),
    "cached": lambda rows: total(row.get("reported_cached_input_tokens") for row in rows),
    "output": lambda rows: total(tokens(row, "output") for row in rows),
    "unpriced_input": lambda rows: total(tokens(row, "input") for row in rows if unpriced(row)),
    "unpriced_output": lambda rows: total(tokens(row, "output") for row in rows if unpriced(row)),
    "without_session": lambda rows: sum("session" not in row for row in rows),
    "calls_with_ttft": lambda rows: len(steady(rows, "ttft_seconds")),
    "calls_with_tps": lambda rows: len(steady(rows, "output_tokens_per_second")),
}
FIGURES = SUMS | {
    "sessions": lambda rows: len(by_session(rows)),
    "priced_sessions": of_sessions(lambda sessions: sum(cost(calls) is not None for calls in sessions)),
    "failed_sessions": lambda rows: len({row["session"] for row in rows if failed(row) and "session" in row}),
    "failed_share": lambda rows: share(SUMS["failed"](rows), len(rows)),
    "cached_share": lambda rows: share(SUMS["cached"](rows), SUMS["input"](rows)),
    "share": lambda rows: share(SUMS["without_session"](rows), len(rows)),
    "mean_calls": of_sessions(lambda sessions: mean(map(len, sessions))),
    "p50_calls": of_sessions(lambda sessions: quantile(0.5, map(len, sessions))),
    "p95_calls": of_sessions(lambda sessions: quantile(0.95, map(len, sessions))),
    "mean_cost": of_sessions(lambda sessions: mean(map(cost, sessions))),
    "p50_cost": of_sessions(lambda sessions: quantile(0.5, map(cost, sessions))),
    "p95_cost": of_sessions(lambda sessions: quantile(0.95, map(cost, sessions))),
    "median_ttft": lambda rows: quantile(0.5, [row.get("ttft_seconds") for row in rows]),
    "ttft_p50": percentile(0.5, "ttft_seconds"),
    "ttft_p95": percentile(0.95, "ttft_seconds"),
    "ttft_p99": percentile(0.99, "ttft_seconds"),
    "tps_p50": percentile(0.5, "output_tokens_per_second"),
    "tps_p5": percentile(0.05, "output_tokens_per_second"),
    "duration_p95": lambda rows: quantile(0.95, [row["duration_seconds"] for row in rows]),
    "model_seconds": model_seconds,
    "wall_seconds": wall_seconds,
    "mean_tps": mean_tps,
}
