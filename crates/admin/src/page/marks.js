// Marks: events at an instant, drawn as lines on all curves over time.
import { get } from "./api.js";
import { plural, time } from "./format.js";

const NEAR = 5; // pixels between a mark and the cursor that shows it
const SHOWN = 3; // marks in one label
let marks = [];

/** Loads the marks for the view, unless `current()` is false by then. */
export async function loadMarks({ since, until, model, workload, route, upstream }, current) {
  try {
    const { marks: found } = await get("marks", { from: since, to: until, model, workload, route, upstream, limit: 1000 });
    if (!current()) return;
    marks = found.map((mark) => ({ ...mark, at: Date.parse(mark.time) / 1000 }));
    document.dispatchEvent(new Event("marks"));
  } catch (error) {
    // The curves already show that the proxy does not respond.
    console.debug("marks:", error.message);
  }
}

/** The marks between two instants in seconds, the newest first. */
export const marksWithin = ([from, to]) => marks.filter(({ at }) => at >= from && at <= to);

/** The text of a mark. */
export function words({ time: at, text, model, upstream, route, workload }) {
  const about = [model, upstream, route, workload].filter(Boolean).join(", ");
  return `${time(at, true)} ${text}${about ? ` (${about})` : ""}`;
}

/** Draws a line for each mark. */
export function drawMarks(plot, range, colour) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.lineWidth = devicePixelRatio;
  for (const { at } of marksWithin(range)) {
    const x = Math.round(plot.valToPos(at, "x", true)) + 0.5;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

/** The text of the marks near the cursor at `left` pixels, or an empty text. */
export function marksAt(plot, range, left) {
  const near = marksWithin(range).filter(({ at }) => Math.abs(plot.valToPos(at, "x") - left) <= NEAR);
  const more = near.length > SHOWN ? [`and ${near.length - SHOWN} more`] : [];
  return [...near.slice(0, SHOWN).map(words), ...more].join("\n");
}

/** The number of marks, for people who cannot see the lines. */
export function marksSummary(range) {
  const { length } = marksWithin(range);
  return length > 0 ? ` ${plural(length, "mark")} in this window, listed below the table.` : "";
}
