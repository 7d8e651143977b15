"""Bytes that an upstream sends after the end of a response, compared with nginx and haproxy. None of them may become
part of the next agent's answer. In HTTP/1.1, bytes that arrive after the next request cannot be distinguished
from its answer. In this case the proxy must not be worse than the others."""

import collections
import concurrent.futures

import pytest

from late_bytes import CASES, CONTROLS, Upstream, play, proxies


@pytest.fixture(scope="module")
def played(tokengauge, tmp_path_factory):
    """Returns what the second agent got, by case and proxy, and the connections of the cases without an attack."""
    upstreams = [Upstream(case) for case in CASES + CONTROLS]
    got, connections = collections.defaultdict(dict), collections.defaultdict(dict)
    with proxies(tokengauge, tmp_path_factory.mktemp("late"), upstreams) as ports:
        for proxy, port in ports.items():

            def one(at, port=port):
                return upstreams[at].case, play(port, at, upstreams[at]), upstreams[at].connections

            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                for case, answer, opened in pool.map(one, range(len(upstreams))):
                    got[case][proxy] = answer
                    connections[case][proxy] = opened
    counts = collections.Counter(
        (proxy, case.while_asked, answer) for case in CASES for proxy, answer in got[case].items()
    )
    for (proxy, while_asked, answer), count in sorted(counts.items()):
        print(f"{proxy}: {'while asked' if while_asked else 'before'}: {answer}: {count}")
    return got, connections


def test_bytes_before_the_next_request_reach_no_agent(played):
    got, _ = played
    wrong = {case.name: got[case] for case in CASES if not case.while_asked and got[case]["tokengauge"] != "its own"}
    assert not wrong


def test_bytes_after_the_next_request_do_no_more_harm_than_with_others(played):
    got, _ = played
    worse = {
        case.name: got[case]
        for case in CASES
        if case.while_asked
        and got[case]["tokengauge"] == "planted"
        and "planted" not in (got[case]["nginx"], got[case]["haproxy"])
    }
    assert not worse


def test_connections_without_late_bytes_are_reused(played):
    got, connections = played
    for case in CONTROLS:
        assert set(got[case].values()) == {"its own"}, case.name
        assert connections[case] == {"tokengauge": 1, "nginx": 1, "haproxy": 1}, case.name
