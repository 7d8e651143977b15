"""Metrics of a vLLM server under a steady load, with its names and in its format.

vLLM itself has 6 GB, and the dashboards need only its metrics. Names, labels and buckets match vLLM 0.11."""

import time

from prometheus import exporter

LABELS = 'engine="0",model_name="gpt-sim"'
CALLS_PER_SECOND = 3
SECONDS = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0]
TOKEN_SECONDS = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5]


def histogram(name, bounds, mean, count):
    """A histogram of `count` observations, evenly distributed between 0.5 and 1.5 times `mean`."""
    lines = [f"# HELP {name} Histogram.", f"# TYPE {name} histogram"]
    for bound in [*bounds, float("inf")]:
        share = min(max(bound / mean - 0.5, 0), 1)
        le = "+Inf" if bound == float("inf") else str(bound)
        lines.append(f'{name}_bucket{{{LABELS},le="{le}"}} {int(count * share)}')
    return [*lines, f"{name}_count{{{LABELS}}} {count}", f"{name}_sum{{{LABELS}}} {count * mean}"]


def sample(name, kind, value):
    return [f"# HELP {name} {kind}.", f"# TYPE {name} {kind}", f"{name}{{{LABELS}}} {value}"]


def exposition(seconds):
    """Returns the text of a scrape this many seconds after the start."""
    calls = int(seconds * CALLS_PER_SECOND)
    tokens = calls * 60
    lines = sample("vllm:num_requests_running", "gauge", 3 + int(seconds) % 4)
    lines += sample("vllm:num_requests_waiting", "gauge", int(seconds) % 3)
    lines += sample("vllm:kv_cache_usage_perc", "gauge", 0.4 + (int(seconds) % 10) / 50)
    lines += sample("vllm:prompt_tokens_total", "counter", calls * 400)
    lines += sample("vllm:generation_tokens_total", "counter", tokens)
    lines += histogram("vllm:time_to_first_token_seconds", SECONDS, 0.09, calls)
    lines += histogram("vllm:request_queue_time_seconds", SECONDS, 0.03, calls)
    lines += histogram("vllm:request_prefill_time_seconds", SECONDS, 0.05, calls)
    lines += histogram("vllm:inter_token_latency_seconds", TOKEN_SECONDS, 0.012, tokens)
    return "\n".join(lines) + "\n"


def serving():
    """Yields the address of the endpoint."""
    started = time.monotonic()
    return exporter(lambda: exposition(time.monotonic() - started))
