// Exports the shown rows as comma-separated values with exact figures.
import { h } from "./dom.js";
import { userName } from "./names.js";
import { saveFile } from "./save.js";

/** A button that exports `rows()`, objects of the API, under `name`. */
export const csvButton = (name, rows) => h("button", { type: "button", class: "csv", "aria-label": `Export ${name} as CSV`, title: `Export ${name} as CSV`, on: { click: () => save(name, rows()) } }, "CSV");

const save = (name, rows) => saveFile(new Blob([csv(rows)], { type: "text/csv" }), name, "csv");

/** A line of column names and a line for each row. Nested members become columns such as `tps.p50`. */
function csv(rows) {
  const flat = rows.map((row) => flatten(row));
  const columns = [...new Set(flat.flatMap((row) => Object.keys(row)))];
  return [columns, ...flat.map((row) => columns.map((column) => row[column]))].map((cells) => `${cells.map(quoted).join(",")}\r\n`).join("");
}

function flatten(value, prefix = "", into = {}) {
  for (const [key, member] of Object.entries(value)) {
    if (member !== null && typeof member === "object" && !Array.isArray(member)) flatten(member, `${prefix}${key}.`, into);
    else if (key === "user" && member) into[prefix + key] = userName(member);
    else into[prefix + key] = Array.isArray(member) ? JSON.stringify(member) : member;
  }
  return into;
}

function quoted(value) {
  if (value === null || value === undefined) return "";
  // A spreadsheet must not interpret a name from traffic as a formula.
  const written = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(written) ? `"${written.replaceAll('"', '""')}"` : written;
}
