// Charts with uPlot in the colours of the page. Their figures are also available as a legend, a description and a table.
import { csvButton } from "./csv.js";
import { h, text } from "./dom.js";
import { date, time } from "./format.js";
import { drawMarks, marksAt, marksSummary, marksWithin, words } from "./marks.js";

const all = new Set();
const colours = new Map();
document.addEventListener("theme", () => {
  colours.clear();
  all.forEach((chart) => chart.redraw());
});
document.addEventListener("marks", () => all.forEach((chart) => chart.marked()));

/** A colour of the style sheet in the form that the canvas needs. */
export function colour(name) {
  if (!colours.has(name)) {
    const probe = h("i", { hidden: true, style: { color: `var(${name})` } });
    document.body.append(probe);
    colours.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(name);
}

/**
 * `series`: `{key, label, colour, dash, width, scale, fill, points, optional}`. An optional series is hidden without values.
 * `band`: two keys between which the area is filled. `stacked`: stacked bars instead of lines, the first series at the
 * bottom. `x`: "time" or the label of the axis. `write` formats a value. `zoom` is called with the part of the x axis that a
 * drag selects. `total(series)`: the value over the whole window, which is shown instead of the last value.
 */
export class Chart {
  constructor(host, { label, series, band, stacked, x = "time", write, writeRight, high, marks, nothing, summary, zoom, total }) {
    Object.assign(this, { label, series, stacked, x, write, writeRight, marks, summary, zoom, total, points: [], range: [0, 1] });
    this.values = series.map(() => h("b"));
    const keys = series.map((one, place) =>
      h("li", {}, h("i", { class: one.box ? "box" : null, style: { background: `var(${one.colour})` } }), one.label, this.values[place]),
    );
    this.at = h("li", { class: "at" });
    this.plot = h("div", { class: high ? "plot high" : "plot", role: "img", "aria-label": label });
    this.none = h("p", { class: "nothing" }, nothing ?? "No calls in this window.");
    this.rows = h("div");
    this.markLabel = h("p", { class: "mark", hidden: true });
    this.table = h("details", { on: { toggle: () => this.fillTable() } }, h("summary", {}, "Data table"), this.rows);
    host.append(h("ul", { class: "keys", "aria-hidden": "true" }, keys, this.at), this.plot, this.table);
    this.uplot = new uPlot(this.options(band), [[], ...series.map(() => [])], this.plot);
    this.plot.append(this.none, this.markLabel);
    this.sized = new ResizeObserver(() => this.size());
    this.sized.observe(this.plot);
    all.add(this);
  }

  /** Removes a chart that another one replaces. */
  remove() {
    this.sized.disconnect();
    this.uplot.destroy();
    all.delete(this);
  }

  /** The series in drawing order. In a stack the sum of all series is drawn first, so that each part covers it. */
  drawn() {
    return this.stacked ? this.series.toReversed() : this.series;
  }

  /** The values that are drawn for a point. */
  heights(point) {
    const values = this.series.map(({ key }) => point[key] ?? null);
    if (!this.stacked) return values;
    let sum = 0;
    return values.map((value) => (sum += value ?? 0)).toReversed();
  }

  options(band) {
    const place = (key) => this.series.findIndex((one) => one.key === key) + 1;
    const time = this.x === "time";
    const axis = { stroke: () => colour("--muted"), font: "11.5px system-ui, sans-serif", ticks: { show: false } };
    const grid = { stroke: () => colour("--line"), width: 1 };
    const up = (_, least, most) => [0, most > 0 ? most * 1.08 : 1];
    const right = this.series.some((one) => one.scale === "right");
    return {
      width: 300,
      height: 150,
      legend: { show: false },
      cursor: { y: false, drag: { x: Boolean(this.zoom), y: false, setScale: false }, points: { size: 6 } },
      padding: [8, right ? 0 : 10, 0, 0],
      scales: { x: { time: false, range: () => this.range }, y: { range: up }, right: { range: up } },
      axes: [
        { ...axis, grid: { show: false }, size: 24, gap: 4, space: 60, values: (plot, at) => at.map((value) => (cut(plot, value) ? "" : this.tick(value))), ...(time ? { incrs: STEPS } : { incrs: WHOLE }) },
        { ...axis, grid, size: 52, gap: 4, values: (_, at) => at.map((value) => this.write(value, true)) },
        ...(right ? [{ ...axis, scale: "right", side: 1, size: 48, gap: 4, grid: { show: false }, values: (_, at) => at.map((value) => (this.writeRight ?? this.write)(value, true)) }] : []),
      ],
      bands: band ? [{ series: band.map(place), fill: () => colour("--band") }] : [],
      series: [{}, ...this.drawn().map((one) => (this.stacked ? bar(one) : this.line(one)))],
      hooks: {
        setCursor: [(plot) => this.legend(plot.cursor.idx), (plot) => this.point(plot)],
        setSelect: [(plot) => this.selected(plot)],
        draw: [(plot) => this.marks?.(plot, this), (plot) => time && drawMarks(plot, this.range, colour("--mark"))],
      },
    };
  }

  line({ colour: name, dash, width = 1.75, scale = "y", fill, points }) {
    const alone = (plot, series, show, gaps) => {
      const data = plot.data[series];
      const found = [];
      data.forEach((value, at) => {
        if (value !== null && (points || ((data[at - 1] ?? null) === null && (data[at + 1] ?? null) === null))) found.push(at);
      });
      return found;
    };
    return { stroke: () => colour(name), fill: fill ? () => colour(fill) : undefined, width, dash, scale, points: { size: points ? 6 : 5, fill: () => colour(name), width: 1, filter: alone, show: true } };
  }

  tick(value) {
    if (this.x !== "time") return String(value);
    return this.range[1] - this.range[0] > 3 * 86_400 ? date(value * 1000) : time(value * 1000)?.replace(/.*, /, "");
  }

  /** `points` are in order of `at`, in seconds or in the unit of the x axis. */
  update(points, range) {
    this.points = points;
    this.range = range;
    this.none.hidden = points.some((point) => this.series.some(({ key }) => (point[key] ?? null) !== null));
    this.series.forEach((one, place) => (this.values[place].parentElement.hidden = !this.named().includes(one)));
    const rows = points.map((point) => this.heights(point));
    this.uplot.setData([points.map((point) => point.at), ...this.series.map((_, place) => rows.map((row) => row[place]))]);
    this.legend(this.uplot.cursor.idx);
    this.plot.setAttribute("aria-label", this.described());
    if (this.table.open) this.fillTable();
  }

  named() {
    return this.series.filter(({ key, optional }) => !optional || this.points.some((point) => (point[key] ?? null) !== null));
  }

  described() {
    const last = this.points.findLast((point) => this.series.some(({ key }) => (point[key] ?? null) !== null));
    const marks = this.x === "time" ? marksSummary(this.range) : "";
    if (!last) return `${this.label}: no data in this window.${marks}`;
    const shown = (one) => (this.total ? this.total(one) : this.valueOf(one, last));
    return `${this.label}. ${this.summary?.(this) ?? `${this.total ? "Total" : "Last"}: ${this.named().map((one) => `${one.label} ${shown(one)}`).join(", ")}`}. All figures are in the table below.${marks}`;
  }

  valueOf(one, point) {
    const value = point?.[one.key] ?? null;
    return value === null ? "–" : (one.scale === "right" ? (this.writeRight ?? this.write) : this.write)(value);
  }

  /** The values under the cursor, otherwise the totals or the last values. */
  legend(index) {
    const chosen = this.points[index] ?? null;
    const shown = chosen ?? this.points.findLast((point) => this.series.some(({ key }) => (point[key] ?? null) !== null));
    this.series.forEach((one, place) => text(this.values[place], !chosen && this.total ? this.total(one) : this.valueOf(one, shown)));
    text(this.at, chosen ? (this.x === "time" ? time(chosen.at * 1000, true) : `at ${chosen.at} ${this.x}`) : this.total ? "total" : "");
  }

  /** Shows the marks under the cursor. */
  point(plot) {
    const { left } = plot.cursor;
    const said = this.x === "time" && left >= 0 ? marksAt(plot, this.range, left) : "";
    text(this.markLabel, said);
    this.markLabel.hidden = said === "";
    if (!said) return;
    const { offsetLeft, clientWidth } = plot.over;
    const right = left > clientWidth / 2;
    this.markLabel.style.left = right ? "auto" : `${offsetLeft + left + 8}px`;
    this.markLabel.style.right = right ? `${this.plot.clientWidth - offsetLeft - left + 8}px` : "auto";
  }

  /** Draws changed marks. */
  marked() {
    if (this.x !== "time") return;
    this.redraw();
    this.plot.setAttribute("aria-label", this.described());
    this.fillTable();
  }

  fillTable() {
    if (!this.table.open) return;
    const columns = this.columns();
    const head = [this.x === "time" ? "From" : this.x, ...columns.map(({ label }) => label)];
    const rows = this.points.toReversed().filter((point) => this.series.some(({ key }) => (point[key] ?? null) !== null));
    const cells = (point) => columns.map(({ value }) => h("td", { class: "num" }, value(point)));
    const name = (point) => (this.x === "time" ? time(point.at * 1000, true) : String(point.at));
    const table = h(
      "table",
      {},
      h("caption", { class: "vh" }, this.label),
      h("thead", {}, h("tr", {}, head.map((label, place) => h("th", { scope: "col", class: place ? "num" : null }, label)))),
      h("tbody", {}, rows.map((point) => h("tr", {}, h("th", { scope: "row" }, name(point)), cells(point)))),
    );
    const marks = this.x === "time" ? marksWithin(this.range) : [];
    const list = marks.length > 0 ? h("ul", { class: "marks", "aria-label": "Marks" }, marks.map((mark) => h("li", {}, words(mark)))) : null;
    const save = csvButton(this.label, () => rows.map((point) => (this.x === "time" ? { ...point, at: new Date(point.at * 1000).toISOString() } : point)));
    this.rows.replaceChildren(save, h("div", { class: "scroll tall", role: "region", "aria-label": `${this.label}, table`, tabindex: "0" }, table, list));
  }

  /** The columns of the table after the time. */
  columns() {
    return this.named().map((one) => ({ label: one.label, value: (point) => this.valueOf(one, point) }));
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 5) return;
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"));
  }

  size() {
    const { clientWidth: width, clientHeight: height } = this.plot;
    if (width > 0 && (width !== this.uplot.width || height !== this.uplot.height)) this.uplot.setSize({ width, height });
  }

  fail(message) {
    this.none.textContent = `Could not load: ${message}`;
    this.none.hidden = false;
  }

  redraw() {
    this.uplot.redraw(false, true);
  }
}

/** A part of a stack, as bars that start at their step. */
const bar = ({ colour: name }) => ({ fill: () => colour(name), width: 0, paths: uPlot.paths.bars({ size: [0.9, 60], align: 1 }), points: { show: false } });

/** Shades steps whose figures are incomplete, and says why. */
export function shadeSteps(plot, steps, why) {
  if (steps.length === 0) return;
  const { ctx, bbox } = plot;
  const right = bbox.left + bbox.width;
  const place = (at) => Math.min(Math.max(plot.valToPos(at, "x", true), bbox.left), right);
  ctx.save();
  ctx.globalAlpha = 0.12;
  ctx.fillStyle = colour("--muted");
  for (const { at, step } of steps) ctx.fillRect(place(at), bbox.top, place(at + step) - place(at), bbox.height);
  ctx.globalAlpha = 1;
  ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "right";
  ctx.fillText(why, right - 4 * devicePixelRatio, bbox.top + 12 * devicePixelRatio);
  ctx.restore();
}

/** Whether there is no room for a label at a value of the x axis. */
const cut = (plot, value) => plot.valToPos(value, "x") < 16 || plot.valToPos(value, "x") > plot.bbox.width / devicePixelRatio - 8;

const MINUTES = [1, 2, 5, 10, 15, 30].map((n) => n * 60);
const HOURS = [1, 2, 3, 4, 6, 12].map((n) => n * 3600);
const DAYS = [1, 2, 5, 7, 14].map((n) => n * 86_400);
const STEPS = [...MINUTES, ...HOURS, ...DAYS];
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
