// A small curve of an objective's remaining budget over its period.
import { get } from "./api.js";
import { h, svg } from "./dom.js";
import { time } from "./format.js";
import { budget } from "./words.js";

const EVERY = 30_000; // milliseconds between two requests for the same objective
const SHOWN = 20; // objectives that have a curve
const [WIDTH, HEIGHT] = [300, 34];

export class BurnDowns {
  constructor() {
    this.known = new Map();
  }

  /** Requests the stale budgets of the first objectives. Calls `show(name)` for each response. */
  async refresh(slos, show) {
    if (this.asking || document.hidden) return;
    this.asking = true;
    const now = Date.now();
    const due = slos.slice(0, SHOWN).filter(({ name }) => now - (this.known.get(name)?.at ?? 0) >= EVERY);
    for (const { name } of due) {
      try {
        this.known.set(name, { at: now, ...(await get(`slos/${encodeURIComponent(name)}/budget`)) });
        show(name);
      } catch (error) {
        console.debug("budget:", error.message);
      }
    }
    this.asking = false;
  }

  /** The curve of an objective; null if there are fewer than two points. */
  curve(name) {
    const points = this.known.get(name)?.points ?? [];
    if (points.length < 2) return null;
    const values = points.map((point) => point.budget_remaining);
    const low = Math.min(0, ...values);
    const y = (value) => ((1 - value) / (1 - low)) * (HEIGHT - 4) + 2;
    const x = (place) => (place / (points.length - 1)) * WIDTH;
    const line = values.map((value, place) => `${x(place).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    const { value, unit } = budget(values.at(-1));
    const says = `Budget since ${time(points[0].at)}: from 100% left to ${`${value} ${unit}`.trim()}${steepest(points)}`;
    const curve = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": says }, svg("line", { x1: 0, x2: WIDTH, y1: y(0), y2: y(0) }), svg("polyline", { points: line }));
    return h("span", { class: "burn-down", title: says }, curve);
  }
}

/** The time at which most of the budget was spent. */
function steepest(points) {
  const worst = points.reduce((one, other) => (other.bad > one.bad ? other : one));
  return worst.bad > 0 ? `; most of it was spent at ${time(worst.at)}` : "";
}
