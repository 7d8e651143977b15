"""Spending budgets of a real process: the vendors' SDKs see a rate limit, receivers get alerts, and a restart
forgets nothing."""

import json
import re
import signal
import urllib.request

import pytest

from test_slo import Receivers, eventually, start  # noqa: F401

# 20 tokens at 0.001 USD each: the third call spends the budget.
CONFIG = """
state_dir = "{state}"
[[upstream]]
name = "simulator"
url = "{simulator}"
[[route]]
upstream = "simulator"
[[price]]
model = "*"
output = 1000
[[budget]]
name = "sessions"
per = "session"
usd = 0.05
period = "400d"
warn_at = [0.5, 1.0]
block = true
[[notify]]
kind = "webhook"
url = "{webhook}/hook"
"""
BEHAVE = {"x-sim": "tokens=20,ttft=1ms,gap=1ms,usage=on"}


@pytest.fixture
def webhook():
    receivers = Receivers()
    yield receivers
    receivers.server.shutdown()


def ask(proxy, session):
    import openai

    client = openai.OpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0)
    messages = [{"role": "user", "content": "Hello"}]
    headers = BEHAVE | {"x-tokengauge-session": session}
    return client.chat.completions.create(model="m", messages=messages, extra_headers=headers)


def ask_claude(proxy, session):
    import anthropic

    client = anthropic.Anthropic(base_url=proxy.url, api_key="none", max_retries=0)
    named = {"user_id": f"user_x_account_y_session_{session}"}
    messages = [{"role": "user", "content": "Hello"}]
    return client.messages.create(model="m", max_tokens=99, messages=messages, metadata=named, extra_headers=BEHAVE)


def metric(proxy, name):
    with urllib.request.urlopen(f"{proxy.admin}/metrics", timeout=10) as response:
        found = re.search(rf"^{re.escape(name)} (\S+)", response.read().decode(), re.MULTILINE)
    return found and float(found.group(1))


def test_a_spent_budget_refuses_its_session_tells_everybody_and_survives_a_restart_and_a_reload(start, simulator, webhook, tmp_path):  # noqa: F811
    import anthropic
    import openai

    config = CONFIG.format(state=tmp_path / "state", simulator=simulator, webhook=webhook.url)
    proxy = start(config)
    for _ in range(3):
        ask(proxy, "greedy")
    spent = 'tokengauge_budget_spent_ratio{budget="sessions"}'
    eventually("it is spent", lambda: metric(proxy, spent) == pytest.approx(1.2))
    for refused in (openai.RateLimitError, anthropic.RateLimitError):
        # Claude's session is only in the body.
        with pytest.raises(refused, match="budget sessions of this session is spent: 0.06 of 0.05 USD") as raised:
            (ask if refused is openai.RateLimitError else ask_claude)(proxy, "greedy")
        headers = raised.value.response.headers
        assert headers["x-tokengauge-error"] == "budget_spent"
        assert 0 < int(headers["retry-after"]) <= 400 * 24 * 3600
    assert ask(proxy, "modest").usage.completion_tokens == 20
    assert ask_claude(proxy, "modest").usage.output_tokens == 20
    assert metric(proxy, 'tokengauge_budget_blocked_total{budget="sessions"}') == 2
    eventually("modest is half way", lambda: metric(proxy, 'tokengauge_budget_warnings_total{budget="sessions",threshold="0.5"}') == 2)
    assert metric(proxy, 'tokengauge_budget_warnings_total{budget="sessions",threshold="1"}') == 1

    def told():
        """Returns whether the receivers know of both calls over the budget. The notifier runs every few seconds, and
        may have reported the first one before."""
        alerts = [alert for body in webhook.received["/hook"] for alert in body["alerts"]]
        return [alert for alert in alerts if "greedy: 0.06 USD (120%)" in alert["annotations"]["description"]]

    alert = eventually("the webhook is told", told)[0]
    assert (alert["labels"]["alertname"], alert["labels"]["budget"]) == ("TokengaugeSpending", "sessions")
    assert (alert["status"], alert["labels"]["severity"]) == ("firing", "page")
    lines = [json.loads(line) for line in proxy.process.written().splitlines() if line.startswith("{")]
    passed = [line for line in lines if "crossed a threshold" in line["message"]]
    assert [line["name"] for line in passed].count("greedy") == 2

    assert proxy.process.stop() == 0
    again = start(config)
    with pytest.raises(openai.RateLimitError):
        ask(again, "greedy")
    ask(again, "modest")

    # A larger budget keeps its spent amount, so some money is left.
    file = tmp_path / "proxy-1.toml"
    file.write_text(config.replace("usd = 0.05", "usd = 0.5").replace("output = 1000", "output = 2000"))
    again.process.child.send_signal(signal.SIGHUP)
    # A scrape during the reload has no series of the budget.
    eventually("there is money", lambda: 0.1 < (metric(again, spent) or 0) < 0.2)
    ask(again, "greedy")
    eventually("at the new price", lambda: metric(again, spent) == pytest.approx((0.06 + 0.04) / 0.5))
