// The first row: present throughput, speed, errors, budget and cost.
import { other } from "./address.js";
import { h, svg, text } from "./dom.js";
import { count, frequency, known, percent, plural, rate, seconds, usd } from "./format.js";
import { budget } from "./words.js";

const HISTORY = 120; // the seconds of throughput in the background of the first tile

export class Tiles {
  constructor(host) {
    this.history = [];
    this.line = svg("polyline");
    this.area = svg("polygon");
    const spark = svg("svg", { viewBox: `0 0 ${HISTORY} 40`, preserveAspectRatio: "none", "aria-hidden": "true" }, this.area, this.line);
    this.tiles = {};
    for (const [id, label] of [["now", "Throughput"], ["tps", "TPS per call"], ["ttft", "TTFT"], ["errors", "Failed calls"], ["budget", "Error budget"], ["cost", "Cost"]]) {
      const [value, sub] = [h("p", { class: "value" }), h("p", { class: "sub" })];
      const link = h("a", {}, label);
      host.append(h("div", { class: "tile", id: `tile-${id}` }, id === "now" ? spark : null, h("h3", {}, link), value, sub));
      this.tiles[id] = { value, sub, link };
    }
  }

  show(id, value, unit, sub, kind = "") {
    const tile = this.tiles[id];
    const whole = `${value}${unit}`;
    if (tile.whole !== whole) {
      tile.whole = whole;
      tile.value.replaceChildren(value ?? "–", unit && value !== null ? h("small", {}, unit) : "");
    }
    tile.value.className = `value ${kind}`;
    text(tile.sub, sub);
  }

  /** Clears the history and updates the links after the filters changed. */
  forget() {
    this.history = [];
    const leads = { now: "#streams-title", tps: "#tps-title", ttft: "#ttft-title", errors: other("calls", { outcome: "failed" }), budget: "#slos-title", cost: "#cost-title" };
    Object.entries(leads).forEach(([id, to]) => this.tiles[id].link.setAttribute("href", to));
  }

  /** `output` is the throughput of all measured streams over the last ten seconds, including streams that are not listed. */
  streams(streams, total, output) {
    const speeds = streams.map((stream) => stream.tps).filter(known);
    const median = speeds.sort((a, b) => a - b)[Math.floor(speeds.length / 2)];
    const each = known(median) && streams.length === total ? `, median ${rate(median)}` : "";
    const peak = output.peak > 0 ? `, peak ${rate(output.peak)}` : "";
    this.show("now", rate(output.now), "tok/s", `${plural(total, "stream")}${each}${peak}`);
    this.history.push(output.now);
    if (this.history.length > HISTORY) this.history.shift();
    this.draw();
  }

  draw() {
    const top = Math.max(...this.history, 1);
    const from = HISTORY - this.history.length;
    const points = this.history.map((value, at) => `${from + at + 1},${(39 - (value / top) * 37).toFixed(1)}`);
    this.line.setAttribute("points", points.join(" "));
    this.area.setAttribute("points", points.length > 1 ? `${from + 1},40 ${points.join(" ")} ${HISTORY},40` : "");
  }

  /** Shows the figures of all calls in the window; `row` is null without calls. */
  whole(row) {
    const { tps, ttft, calls = 0, errors, cost_usd: cost, requests_per_second: often } = row ?? {};
    const nothing = "no calls in this window";
    this.show("tps", rate(tps?.p50), "tok/s", known(tps?.p10) ? `p10 ${rate(tps.p10)} tok/s; ${count(tps.calls)} of ${plural(calls, "call")} measured` : calls > 0 ? "no calls with TPS" : nothing);
    this.show("ttft", seconds(ttft?.p50), "", known(ttft?.p95) ? `p95 ${seconds(ttft.p95)}, p99 ${seconds(ttft.p99)}` : calls > 0 ? "no streamed calls" : nothing);
    const share = calls > 0 ? errors / calls : null;
    this.show("errors", percent(share), "", calls > 0 ? `${count(errors)} of ${plural(calls, "call")}${known(often) ? `; ${frequency(often)} requests/s` : ""}` : nothing, severity(share));
    const per = known(row?.usd_per_million_output) ? `${usd(row.usd_per_million_output)} per million output tokens, including input` : null;
    const missing = row?.unpriced_calls > 0 ? `no price for ${plural(row.unpriced_calls, "call")}` : null;
    this.show("cost", usd(cost), "", [per, missing].filter(Boolean).join("; ") || (calls > 0 ? "no billable tokens" : nothing));
  }

  slos(slos) {
    if (slos.length === 0) return this.show("budget", null, "", "no objective is configured");
    const worst = slos.reduce((one, other) => (other.budget_remaining < one.budget_remaining ? other : one));
    const { value, unit, kind } = budget(worst.budget_remaining);
    const which = slos.length > 1 ? `${worst.name}, lowest of ${plural(slos.length, "objective")}` : worst.name;
    this.show("budget", value, unit, which, kind === "good" ? "" : kind);
  }
}

export const severity = (share) => (!known(share) || share < 0.01 ? "" : share < 0.05 ? "warn" : "bad");
