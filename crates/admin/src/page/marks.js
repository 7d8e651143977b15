// Marks: what happened at an instant, as lines on all curves over time.
import { get } from "./api.js";
import { plural, time } from "./format.js";

const NEAR = 5; // pixels between a mark and the cursor that shows it
const SHOWN = 3; // marks in one label
let marks = [];

/** Asks for the marks that belong to what is shown, unless `current` is over by then. */
export async function loadMarks({ since, until, model, workload, route, upstream }, current) {
  try {
    const { marks: found } = await get("marks", { from: since, to: until, model, workload, route, upstream, limit: 1000 });
    if (!current()) return;
    marks = found.map((mark) => ({ ...mark, at: Date.parse(mark.time) / 1000 }));
    document.dispatchEvent(new Event("marks"));
  } catch (error) {
    // The curves say by themselves where the proxy does not answer.
    console.debug("marks:", error.message);
  }
}

/** Those within two instants, in seconds, the newest first. */
export const marksWithin = ([from, to]) => marks.filter(({ at }) => at >= from && at <= to);

/** A mark in words. */
export function words({ time: at, text, model, upstream, route, workload }) {
  const about = [model, upstream, route, workload].filter(Boolean).join(", ");
  return `${time(at, true)} ${text}${about ? ` (${about})` : ""}`;
}

/** A line for each mark. */
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

/** What the cursor at `left` pixels points at: an empty text where that is nothing. */
export function marksAt(plot, range, left) {
  const near = marksWithin(range).filter(({ at }) => Math.abs(plot.valToPos(at, "x") - left) <= NEAR);
  const more = near.length > SHOWN ? [`and ${near.length - SHOWN} more`] : [];
  return [...near.slice(0, SHOWN).map(words), ...more].join("\n");
}

/** For those who do not see the lines. */
export function marksSummary(range) {
  const { length } = marksWithin(range);
  return length > 0 ? ` ${plural(length, "mark")} in this window, listed below the table.` : "";
}
