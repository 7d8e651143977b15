// TPS, TTFT and output over time, with their percentiles.
import { get } from "./api.js";
import { Chart, colour } from "./chart.js";
import { frequency, plural, rate, seconds } from "./format.js";
import { address, change } from "./address.js";
import { backBy, filtersAgainst, span, step } from "./filters.js";
import { loadMarks } from "./marks.js";

export class Speeds {
  constructor(tps, ttft, output) {
    const zoom = (from, to) => change({ since: null, from: second(from), to: second(Math.max(to, from + 1)) });
    const then = { key: "then", label: "p50 then", colour: "--second", width: 1.5, dash: [2, 3], optional: true };
    const median = { key: "p50", label: "p50", colour: "--accent", width: 2.25 };
    this.tps = new Chart(tps, {
      label: "Tokens per second of a call, by the time it began",
      series: [{ key: "p90", label: "p90", colour: "--accent", width: 0.75 }, median, { key: "p10", label: "p10, slow tail", colour: "--tail", width: 1.5 }, then],
      band: ["p90", "p10"],
      write: (value) => rate(value),
      nothing: "No call with a speed in this window.",
      marks: underWay,
      zoom,
    });
    this.ttft = new Chart(ttft, {
      label: "Time to first token, by the time the call began",
      series: [{ key: "p99", label: "p99", colour: "--tail", width: 1.25, dash: [5, 4] }, { key: "p90", label: "p90", colour: "--accent", width: 0.75 }, median, then],
      band: ["p90", "p50"],
      write: (value) => seconds(value),
      nothing: "No streamed call in this window.",
      marks: underWay,
      zoom,
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

  /** Shows a window, unless `current` is over by then. */
  async load(filters, current) {
    const { against } = address.params;
    const asked = (metric, of = filters) => get("timeseries", { ...of, metric, step: `${step()}s` });
    const earlier = (metric) => (against ? asked(metric, filtersAgainst(against)) : null);
    loadMarks(filters, current);
    try {
      const [tps, ttft, tpsThen, ttftThen] = await Promise.all([asked("tps"), asked("ttft"), earlier("tps"), earlier("ttft")]);
      if (!current()) return;
      const now = Date.now() / 1000;
      const shown = span(now);
      const end = shown.to ?? now;
      const range = [from(tps, shown.from, end), end];
      const back = against ? backBy(against) : 0;
      this.tps.update(beside(settled(spread(tps)), tpsThen, back), range);
      this.ttft.update(beside(settled(spread(ttft)), ttftThen, back), range);
      // A step that is not over has not all of its tokens yet.
      const over = spread(tps).filter((point) => point.at + tps.step <= now + 1);
      this.output.update(over, range);
    } catch (error) {
      [this.tps, this.ttft, this.output].forEach((chart) => chart.fail(error.message));
      throw error;
    }
  }
}

/** The points with the medians of an earlier time, `back` seconds before, drawn at the steps of this one. */
function beside(points, then, back) {
  if (!then) return points;
  const by = new Map(points.map((point) => [point.at, point]));
  for (const { at, p50 } of spread(then)) {
    const here = Math.round((at + back) / then.step) * then.step;
    by.set(here, { ...(by.get(here) ?? { at: here }), then: p50 });
  }
  return [...by.values()].sort((one, other) => one.at - other.at);
}

/** Seconds since 1970 as an address has them. */
const second = (at) => new Date(Math.round(at) * 1000).toISOString().replace(".000Z", "Z");

/** Shades the steps of which calls are under way. */
function underWay(plot, chart) {
  const open = chart.points.filter((point) => point.in_flight > 0);
  if (open.length === 0) return;
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  const place = (at) => Math.min(Math.max(plot.valToPos(at, "x", true), bbox.left), right);
  ctx.save();
  ctx.globalAlpha = 0.12;
  ctx.fillStyle = colour("--muted");
  for (const { at, step } of open) ctx.fillRect(place(at), bbox.top, place(at + step) - place(at), bbox.height);
  ctx.globalAlpha = 1;
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  const calls = open.reduce((sum, point) => sum + point.in_flight, 0);
  ctx.fillText(`${plural(calls, "call")} under way`, right - 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  ctx.restore();
}

/** What has just begun is shown from its beginning on, not at the edge of an empty day. */
function from({ points, step }, start, now) {
  const earliest = points.find((point) => point.calls > 0);
  const first = earliest ? Date.parse(earliest.at) / 1000 - step : start;
  return Math.max(start, Math.min(first, now - (now - start) / 5));
}

/** Of calls that began just now only the quick ones have ended: their percentiles are no figures yet. */
const settled = (points) => points.map((point) => (point.in_flight > 0 ? { ...point, p10: null, p50: null, p90: null, p99: null } : point));

const spread = ({ points, step }) => points.map((point) => ({ ...point, step, at: Date.parse(point.at) / 1000, failed_per_second: point.errors / step }));
