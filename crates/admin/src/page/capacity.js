// Throughput by concurrency, and the concurrency above which it hardly grows.
import { Chart, colour } from "./chart.js";
import { h } from "./dom.js";
import { count, rate, time } from "./format.js";

export class Capacity {
  constructor(host) {
    this.upstreams = [];
    this.select = h("select", { "aria-label": "Upstream", hidden: true, on: { change: () => this.show() } });
    this.verdict = h("p", { class: "note" });
    this.verdict.style.marginTop = "0";
    host.append(h("div", { class: "head" }, this.select, this.verdict));
    this.chart = new Chart(host, {
      label: "Throughput by streams in flight",
      x: "streams in flight",
      high: true,
      series: [
        { key: "system_tps", label: "all streams, tok/s", colour: "--accent", points: true, width: 2 },
        { key: "request_tps", label: "one stream, tok/s (right)", colour: "--tail", scale: "right", dash: [6, 4], points: true },
      ],
      write: (value) => rate(value),
      marks: (plot) => this.mark(plot),
      nothing: "No calls with TPS in this window.",
      summary: () => this.verdict.textContent,
    });
  }

  get chosen() {
    return this.upstreams.find((upstream) => upstream.name === this.select.value) ?? this.upstreams[0];
  }

  /** `narrowed` is true if filters are active, which do not apply to concurrency. */
  update(upstreams, narrowed) {
    this.narrowed = narrowed;
    const busy = (upstream) => upstream.points.reduce((sum, point) => sum + (point.seconds ?? 0), 0);
    this.upstreams = [...upstreams].sort((one, other) => busy(other) - busy(one));
    const names = this.upstreams.map(({ name }) => name);
    if (names.join("\n") !== this.names) {
      const before = this.select.value;
      this.select.replaceChildren(...names.map((name) => h("option", { value: name }, name)));
      if (names.includes(before)) this.select.value = before;
      this.names = names.join("\n");
    }
    this.select.hidden = names.length < 2;
    this.show();
  }

  show() {
    const { points = [], knee, reason, changed_at: changed } = this.chosen ?? {};
    this.verdict.textContent = knee
      ? `Knee at ${count(knee.concurrency)} streams and ${rate(knee.system_tps)} tok/s: with more streams, each stream is slower and the throughput hardly grows.`
      : points.length > 0 ? `No knee${changed ? " since" : ""}${reason ? `: ${reason}` : " is known"}.` : "";
    if (changed) this.verdict.textContent = `The upstream changed at ${time(changed)}; the curve covers the time since.  ${this.verdict.textContent}`;
    if (this.narrowed && points.length > 0) this.verdict.textContent += " The figures include all calls of the upstream, regardless of the filters.";
    const ordered = [...points].sort((one, other) => one.concurrency - other.concurrency).map((point) => ({ ...point, at: point.concurrency }));
    const last = ordered.at(-1)?.at ?? 1;
    this.chart.update(ordered, [Math.min(ordered[0]?.at ?? 0, 1) - 0.2, last * 1.04 + 0.2]);
  }

  mark(plot) {
    const knee = this.chosen?.knee;
    if (!knee) return;
    const [x, { top, height, left, width }] = [plot.valToPos(knee.concurrency, "x", true), plot.bbox];
    const draw = plot.ctx;
    draw.save();
    draw.strokeStyle = colour("--warn");
    draw.fillStyle = colour("--warn");
    draw.lineWidth = devicePixelRatio;
    draw.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
    draw.beginPath();
    draw.moveTo(x, top);
    draw.lineTo(x, top + height);
    draw.stroke();
    draw.font = `${11.5 * devicePixelRatio}px system-ui, sans-serif`;
    const far = x > left + width * 0.8;
    draw.textAlign = far ? "right" : "left";
    draw.fillText("knee", x + (far ? -5 : 5) * devicePixelRatio, top + height - 6 * devicePixelRatio);
    draw.restore();
  }

  fail(message) {
    this.verdict.textContent = `Could not load: ${message}`;
  }
}
