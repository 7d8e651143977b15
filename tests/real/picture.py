"""Draws panels of the dashboards from a real run for docs/dashboards.md: `make picture`.

It uses a proxy with simulated traffic, a real Prometheus, and the panels' own queries, but no Grafana."""

import contextlib
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plot  # noqa: E402
from matplotlib.colors import LogNorm  # noqa: E402

import traffic  # noqa: E402
from dashboards import loaded, panels  # noqa: E402
from processes import free_port, running  # noqa: E402
from prometheus import prometheus  # noqa: E402

HERE = pathlib.Path(__file__).parent
PROJECT = HERE.parent.parent
BINARY = pathlib.Path(os.environ.get("TOKENGAUGE_BIN", PROJECT / "target/debug/tokengauge"))
SECONDS = float(os.environ.get("TOKENGAUGE_TRAFFIC_SECONDS", 120))
# Above 14 streams each gets a share, so load becomes visible.
BEHAVIOUR = "seed=7,usage=on,knee=14"
RATE = "15s"
COLOURS = {"green": "#56a64b", "orange": "#ff780a", "red": "#e02f44", "blue": "#3274d9", "yellow": "#e0b400", "purple": "#a352cc"}
COLOURS |= {"dark-red": "#c4162a", "dark-orange": "#fa6400", "text": "#8e8e8e"}
OTHERS = ["#3274d9", "#56a64b", "#ff780a", "#a352cc", "#e0b400", "#e02f44", "#37a2a2", "#8e8e8e"]
# Dashboard, panel, and the maximum of the axis.
PANELS = [
    ("speed", "Decode speed of calls", None),
    ("speed", "Calls by experience", 1),
    ("speed", "Time to first token", None),
    ("speed", "Inter-token latency, distribution", None),
    ("capacity", "Output and streams", None),
    ("service-levels", "Share of bad events", None),
]


def panel(dashboard, title):
    return next(one for one in panels(loaded(PROJECT / f"dashboards/{dashboard}.json")) if one["title"] == title)


def filled_in(expression):
    expression = expression.replace("$__rate_interval", RATE)
    return re.sub(r"\$(cluster|namespace|job|instance|upstream|route|model|workload|slo)\b", ".*", expression)


def legend(target, labels):
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found.group(1), ""), target["legendFormat"])


def colour_of(drawn, name, number):
    for override in drawn["fieldConfig"]["overrides"]:
        if override["matcher"] == {"id": "byName", "options": name}:
            for one in override["properties"]:
                if one["id"] == "color":
                    return COLOURS[one["value"]["fixedColor"]]
    return OTHERS[number % len(OTHERS)]


def lines(axes, drawn, watching):
    found = [(target, labels, points) for target in drawn["targets"] for labels, points in watching.query_range(filled_in(target["expr"]))]
    right = {one["matcher"]["options"] for one in drawn["fieldConfig"]["overrides"] if any(p["id"] == "custom.axisPlacement" for p in one["properties"])}
    stacked = drawn["fieldConfig"]["defaults"]["custom"].get("stacking")
    base, second = {}, None
    for number, (target, labels, points) in enumerate(found):
        name = legend(target, labels)
        points = [(at - watching.start, value) for at, value in points if math.isfinite(value)]
        times, values = [at for at, _ in points], [value for _, value in points]
        colour = colour_of(drawn, name, number)
        if stacked:
            top = [base.get(round(at), 0) + value for at, value in points]
            axes.fill_between(times, [base.get(round(at), 0) for at in times], top, color=colour, alpha=0.75, linewidth=0, label=name)
            base |= {round(at): value for at, value in zip(times, top)}
        elif name in right:
            second = second or axes.twinx()
            second.plot(times, values, color=colour, linewidth=1.2, linestyle="--")
            second.set_ylim(bottom=0)
            second.tick_params(labelsize=8, colors="#666666")
            axes.plot([], [], color=colour, linestyle="--", label=f"{name} (right)")
        else:
            axes.plot(times, values, color=colour, linewidth=1.4, label=name)
    for step in drawn["fieldConfig"]["defaults"].get("thresholds", {"steps": []})["steps"]:
        if step["value"] and "thresholdsStyle" in drawn["fieldConfig"]["defaults"]["custom"]:
            axes.axhline(step["value"], color=COLOURS[step["color"]], linewidth=0.7, linestyle=":")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=5, fontsize=8, frameon=False, handlelength=1.4, columnspacing=1.2)


def heatmap(axes, drawn, watching):
    found = watching.query_range(filled_in(drawn["targets"][0]["expr"]))
    rows = sorted((float(labels["le"]), dict(points)) for labels, points in found if labels["le"] != "+Inf")
    times = sorted({at for _, points in rows for at in points})
    cumulated = [[points.get(at, 0) for at in times] for _, points in rows]
    below = [[0] * len(times), *cumulated[:-1]]
    cells = [[max(here - under, 0) or math.nan for here, under in zip(*pair)] for pair in zip(cumulated, below)]
    edges = [rows[0][0] / 2, *(bound for bound, _ in rows)]
    xs = [at - watching.start for at in [*times, times[-1] + 1]]
    shown = axes.pcolormesh(xs, edges, cells, cmap="Oranges", norm=LogNorm(vmin=0.1))
    axes.set_yscale("log")
    axes.set_ylim(0.001, 1)
    bar = axes.figure.colorbar(shown, ax=axes, pad=0.01)
    bar.ax.tick_params(labelsize=7)
    bar.set_label("tokens / s", fontsize=8)


UNITS = {"s": "s", "suffix: tok/s": "tokens / s", "percentunit": "share", "cps": "s"}


def draw(watching, file):
    figure, grid = plot.subplots(3, 2, figsize=(13.5, 11.5), dpi=82)
    figure.patch.set_facecolor("white")
    for axes, (dashboard, title, top) in zip(grid.flat, PANELS):
        drawn = panel(dashboard, title)
        (heatmap if drawn["type"] == "heatmap" else lines)(axes, drawn, watching)
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        axes.set_ylabel(UNITS[drawn["fieldConfig"]["defaults"]["unit"]], fontsize=8, color="#666666")
        axes.tick_params(labelsize=8, colors="#666666")
        axes.grid(color="#e6e6e6", linewidth=0.6)
        axes.set_xlim(10, watching.end - watching.start)
        axes.set_ylim(top=top)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout(h_pad=2.2, w_pad=2.0)
    figure.savefig(file, pil_kwargs={"optimize": True})


def main(file):
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = [BINARY, "demo", "backend", "--listen", "127.0.0.1:0", "--behave", BEHAVIOUR]
        backend = stack.enter_context(running(command, folder / "sim.log"))
        simulator = "http://" + backend.wait_for_line(r"listening on (\S+)")
        config = folder / "proxy.toml"
        gone = f"http://127.0.0.1:{free_port()}"
        template = (HERE / "observed.toml").read_text().replace("$simulator", simulator).replace("$gone", gone)
        template = template.replace("$ledger", str(config.with_name("observed.sqlite")))
        config.write_text(template.replace("$engine", simulator).replace("$vllm", gone.removeprefix("http://")))
        rules = folder / "rules.yaml"
        command = [BINARY, "print", "rules", "--config", config, "--resolution", "5s"]
        rules.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        command = [BINARY, "run", "--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        proxy = stack.enter_context(running(command, folder / "proxy.log"))
        admin = proxy.wait_for_line(r"\badmin on (127\.0\.0\.1:\d+)")
        watching = stack.enter_context(prometheus(folder / "prometheus", {"tokengauge": [admin]}, [rules]))
        watching.wait_for("up")
        traffic.run("http://" + proxy.wait_for_line(r"\blistening on (127\.0\.0\.1:\d+)"), SECONDS, at_once=6)
        watching.end = time.time() - 5
        draw(watching, file)


if __name__ == "__main__":
    main(sys.argv[1])
