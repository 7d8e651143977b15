// TPS, TTFT and throughput over time, with percentiles.
import { get } from "./api.js";
import { Chart, shadeSteps } from "./chart.js";
import { h, toggle } from "./dom.js";
import { frequency, plural, rate, seconds } from "./format.js";
import { address, change } from "./address.js";
import { backBy, filtersAgainst, fromFirst, span, step, zoom } from "./filters.js";
import { HeatMap } from "./heat.js";
import { loadMarks } from "./marks.js";

export class Speeds {
  constructor(tps, ttft, output) {
    const then = { key: "then", label: "p50 previous", colour: "--second", width: 1.5, dash: [2, 3], optional: true };
    const median = { key: "p50", label: "p50", colour: "--accent", width: 2.25 };
    this.shapes = [];
    this.tps = this.both(tps, {
      label: "TPS per call, by start time of the call",
      series: [{ key: "p90", label: "p90", colour: "--accent", width: 0.75 }, median, { key: "p10", label: "p10, slow tail", colour: "--tail", width: 1.5 }, then],
      band: ["p90", "p10"],
      write: (value) => rate(value),
      nothing: "No calls with TPS in this window.",
    });
    this.ttft = this.both(ttft, {
      label: "Time to first token, by start time of the call",
      series: [{ key: "p99", label: "p99", colour: "--tail", width: 1.25, dash: [5, 4] }, { key: "p90", label: "p90", colour: "--accent", width: 0.75 }, median, then],
      band: ["p90", "p50"],
      write: (value) => seconds(value),
      nothing: "No streamed calls in this window.",
    });
    this.output = new Chart(output, {
      label: "Output tokens, requests and failed calls per second",
      series: [
        { key: "tokens_per_second", label: "tok/s", colour: "--accent", fill: "--band" },
        { key: "requests_per_second", label: "requests/s (right)", colour: "--second", scale: "right", width: 1.25 },
        { key: "failed_per_second", label: "failed/s (right)", colour: "--bad", scale: "right", width: 1.25 },
      ],
      write: (value) => rate(value),
      writeRight: (value) => frequency(value),
      zoom,
    });
  }

  /** Creates the percentile curves and the heat map of a metric. Only one of them is visible. */
  both(host, { label, write, nothing, ...options }) {
    const [curves, heat] = [h("div"), h("div")];
    const shape = toggle(`View: ${label}`, [["curves", "Curves"], ["heat", "Heat map"]], "curves", (shape) => change({ speeds: shape === "heat" ? shape : null }));
    host.append(shape, curves, heat);
    const common = { label, write, nothing, marks: underWay, zoom };
    const drawn = new Chart(curves, { ...common, ...options });
    this.shapes.push({ shape, curves, heat });
    let made = null; // created on first use
    const heatMap = () => (made ??= new HeatMap(heat, { ...common, label: `${label}: calls by class` }));
    return { curves: () => drawn, heat: heatMap };
  }

  /** Takes the kind of chart from the address. */
  follow() {
    const hot = address.params.speeds === "heat";
    for (const { shape, curves, heat } of this.shapes) {
      [curves.hidden, heat.hidden] = [hot, !hot];
      [...shape.children].forEach((button, place) => button.setAttribute("aria-pressed", String((place === 1) === hot)));
    }
    return hot;
  }

  /** Loads a time, unless `current()` is false by then. */
  async load(filters, current) {
    const { against } = address.params;
    const hot = this.follow();
    const asked = (metric, of = filters) => get("timeseries", { ...of, metric, step: `${step()}s`, counts: hot ? "true" : null });
    const earlier = (metric) => (against ? asked(metric, filtersAgainst(against)) : null);
    loadMarks(filters, current);
    try {
      const [tps, ttft, tpsThen, ttftThen] = await Promise.all([asked("tps"), asked("ttft"), earlier("tps"), earlier("ttft")]);
      if (!current()) return;
      const now = Date.now() / 1000;
      const shown = span(now);
      const end = shown.to ?? now;
      const earliest = tps.points.find((point) => point.calls > 0);
      const range = [fromFirst(earliest ? Date.parse(earliest.at) / 1000 : Infinity, tps.step, shown.from, end), end];
      const back = against ? backBy(against) : 0;
      for (const [charts, now, then] of [[this.tps, tps, tpsThen], [this.ttft, ttft, ttftThen]]) {
        if (hot) charts.heat().update(settled(spread(now)), range, now.bounds ?? []);
        else charts.curves().update(beside(settled(spread(now)), then, back), range);
      }
      // The last step does not have all of its tokens yet.
      const over = spread(tps).filter((point) => point.at + tps.step <= now + 1);
      this.output.update(over, range);
    } catch (error) {
      [this.tps, this.ttft].forEach((charts) => charts[hot ? "heat" : "curves"]().fail(error.message));
      this.output.fail(error.message);
      throw error;
    }
  }
}

/** Adds the medians of the time that is `back` seconds earlier, at the steps of the present time. */
function beside(points, then, back) {
  if (!then) return points;
  const by = new Map(points.map((point) => [point.at, point]));
  for (const { at, p50 } of spread(then)) {
    const here = Math.round((at + back) / then.step) * then.step;
    by.set(here, { ...(by.get(here) ?? { at: here }), then: p50 });
  }
  return [...by.values()].sort((one, other) => one.at - other.at);
}

/** Shades the steps with calls in flight. */
function underWay(plot, chart) {
  const open = chart.points.filter((point) => point.in_flight > 0);
  const calls = open.reduce((sum, point) => sum + point.in_flight, 0);
  shadeSteps(plot, open, `${plural(calls, "call")} in flight`);
}

/** Removes the percentiles of steps with calls in flight, since only the fast calls of these steps have ended. */
const settled = (points) => points.map((point) => (point.in_flight > 0 ? { ...point, p10: null, p50: null, p90: null, p99: null } : point));

const spread = ({ points, step }) => points.map((point) => ({ ...point, step, at: Date.parse(point.at) / 1000, failed_per_second: point.errors / step }));
