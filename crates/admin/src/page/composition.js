// What the prompts of a session consist of, call by call.
import { Chart } from "./chart.js";
import { h } from "./dom.js";
import { count } from "./format.js";
import { PARTS } from "./prompt.js";

export class Composition {
  constructor(host) {
    this.host = host;
  }

  /** Shows the prompts of the calls that were analyzed. */
  update(calls) {
    const points = calls.map(({ prompt }, place) => ({ at: place + 1, ...prompt })).filter(({ at }) => calls[at - 1].prompt);
    this.host.hidden = points.length === 0;
    if (points.length === 0) return;
    this.chart ??= this.create();
    this.chart.update(points, [0.5, calls.length + 1.5]);
  }

  create() {
    const series = Object.entries(PARTS).map(([key, label], place) => ({ key, label, colour: `--series-${place + 1}`, box: true }));
    const plot = h("div");
    this.host.append(h("h3", {}, "Prompt by call"), h("p", { class: "muted" }, "Tokens of each part of the prompt, in o200k_base tokens. An agent sends the whole conversation again with each call."), plot);
    return new Chart(plot, { label: "Prompt by call", series, stacked: true, x: "call", write: (value) => count(value) });
  }
}
