// Saves files that the page or the proxy creates.
import { open } from "./api.js";
import { h, text } from "./dom.js";

/** The largest number of characters of a name in a file name. */
const LONGEST = 120;

/** Saves `blob`. The file name has the letters and digits of `name`, and the time. */
export function saveFile(blob, name, kind) {
  const url = URL.createObjectURL(blob);
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(":", "");
  h("a", { href: url, download: `tokengauge-${name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, LONGEST)}-${stamp}.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A button that saves the response of `path` to `parameters()` as `name(parameters)`, and shows errors. */
function saveButton(label, path, parameters, [name, kind], attributes) {
  const said = h("span", { class: "muted", role: "status" });
  const save = async () => {
    text(said, " …");
    try {
      const asked = parameters();
      const response = await open(`api/v1/${path}`, asked);
      saveFile(await response.blob(), name(asked), kind);
      text(said, "");
    } catch (error) {
      text(said, ` Could not export: ${error.message}`);
    }
  };
  return h("span", { class: "save" }, h("button", { type: "button", ...attributes, on: { click: save } }, label), said);
}

/** A button that exports an incident report: one file about an objective or a time. */
export function capsuleButton(parameters, label = "Export incident report") {
  const title = "One HTML file with curves, cause, budget, the worst calls, marks, the configuration and commands; without prompts, responses and keys";
  return saveButton(label, "capsule", parameters, [incident, "html"], { title });
}

/** The file name of an incident report: the objective, and the start if it is an instant. */
const incident = ({ slo, since }) => ["incident", slo, since?.includes("T") ? since.slice(0, 19) : null].filter(Boolean).join(" ");

/** A button that exports the newest calls of the filters and time in `parameters()`. */
export function parquetButton(name, parameters) {
  const title = "The newest 10,000 calls with these filters, with all columns and hashes of users";
  return saveButton("Parquet", "calls.parquet", parameters, [() => name, "parquet"], { class: "csv", title, "aria-label": `Export ${name} as Parquet` });
}
