// Heat maps of calls: a column for each step of time, and a row for each class of the metric.
import { Chart, colour } from "./chart.js";
import { h, text } from "./dom.js";
import { plural, time } from "./format.js";

const FAINTEST = 0.12;
/** Grid lines at 1, 2 and 5 of each power of ten. */
const EVEN = [1, 2, 5];

/** A chart of `points` with `counts` by class, and their median as a line. The classes are between `bounds`. */
export class HeatMap extends Chart {
  constructor(host, options) {
    super(host, { ...options, series: [{ key: "p50", label: "p50", colour: "--text", width: 1.5 }], high: true });
    this.bounds = [];
    this.scaleKey = h("li", { class: "scale" }, "1 call", h("i", { class: "ramp", "aria-hidden": "true" }), (this.most = h("b")));
    this.at.before(this.scaleKey);
  }

  options(band) {
    const options = super.options(band);
    const [x, y] = options.axes;
    const range = () => (this.bounds?.length > 1 ? [this.bounds[0], this.bounds.at(-1)] : [0.1, 10]);
    return {
      ...options,
      cursor: { ...options.cursor, y: true },
      scales: { ...options.scales, y: { distr: 3, range } },
      axes: [x, { ...y, splits: () => even(range()), filter: (_, splits) => splits }],
      hooks: { ...options.hooks, drawAxes: [(plot) => this.cells(plot)] },
    };
  }

  /** The `counts` of each point are between neighbouring `bounds`. */
  update(points, range, bounds = this.bounds) {
    this.bounds = bounds;
    this.largest = Math.max(1, ...points.flatMap(({ counts }) => counts ?? []));
    text(this.most, plural(this.largest, "call"));
    super.update(points, range);
  }

  cells(plot) {
    const { ctx, bbox } = plot;
    const { left, top, width, height } = bbox;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, top, width, height);
    ctx.clip();
    ctx.fillStyle = colour("--accent");
    const edges = (this.bounds ?? []).map((bound) => Math.round(plot.valToPos(bound, "y", true)));
    for (const { at, step, counts } of this.points) {
      const [from, to] = [at, at + step].map((edge) => Math.round(plot.valToPos(edge, "x", true)));
      counts?.forEach((count, place) => {
        if (count === 0) return;
        ctx.globalAlpha = this.strength(count);
        ctx.fillRect(from, edges[place + 1], Math.max(to - from, 1), edges[place] - edges[place + 1]);
      });
    }
    ctx.restore();
  }

  /** The strength of a cell's colour. It is logarithmic, so that rare calls are visible. */
  strength(count) {
    if (this.largest === 1) return 1;
    return FAINTEST + (1 - FAINTEST) * (Math.log(count) / Math.log(this.largest));
  }

  /** Describes the cell under the cursor. */
  legend(index) {
    super.legend(index);
    const { left, top } = this.uplot?.cursor ?? {};
    if (!(left >= 0)) return;
    const [at, value] = [this.uplot.posToVal(left, "x"), this.uplot.posToVal(top, "y")];
    const point = this.points.find((point) => point.at <= at && at < point.at + point.step);
    const place = this.bounds.findIndex((bound, place) => bound < value && value <= this.bounds[place + 1]);
    const said = point && place >= 0 ? `${time(point.at * 1000, true)}: ${plural(point.counts?.[place] ?? 0, "call")} of ${this.class(place)}` : "";
    text(this.at, said);
  }

  class(place) {
    return `${this.write(this.bounds[place])} to ${this.write(this.bounds[place + 1])}`;
  }

  /** The columns of the table: after the median, one for each class with calls. */
  columns() {
    const used = this.bounds.slice(1).map((_, place) => place).filter((place) => this.points.some(({ counts }) => counts?.[place] > 0));
    return [...super.columns(), ...used.map((place) => ({ label: this.class(place), value: ({ counts }) => String(counts?.[place] ?? 0) }))];
  }
}

function even([least, most]) {
  const found = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); power++) EVEN.forEach((factor) => found.push(factor * 10 ** power));
  return found.filter((value) => value >= least && value <= most);
}
