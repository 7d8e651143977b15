// Saves files, which are made here or by the proxy.
import { open } from "./api.js";
import { h, text } from "./dom.js";

/** Characters of a name within a file's name. */
const LONGEST = 120;

/** Saves `blob` under `name`, of which a file's name has the letters and digits, and the time. */
export function saveFile(blob, name, kind) {
  const url = URL.createObjectURL(blob);
  const stamp = new Date().toISOString().slice(0, 19).replaceAll(":", "");
  h("a", { href: url, download: `tokengauge-${name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, LONGEST)}-${stamp}.${kind}` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A button that saves what `path` of the API answers to `parameters()`, under `name(parameters)`, with what is wrong beside it. */
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

/** A button that saves the incident of `parameters()`, an objective or a time, as one file, for those who were not there. */
export function capsuleButton(parameters, label = "Export incident report") {
  const title = "One HTML file with curves, cause, budget, the worst calls, marks, the configuration and commands; without prompts, responses and keys";
  return saveButton(label, "capsule", parameters, [incident, "html"], { title });
}

/** The name of an incident: its objective, and its beginning where that is an instant. */
const incident = ({ slo, since }) => ["incident", slo, since?.includes("T") ? since.slice(0, 19) : null].filter(Boolean).join(" ");

/** A button that saves the newest calls of `parameters()`, filters and a time, for analysis. */
export function parquetButton(name, parameters) {
  const title = "The newest 10,000 calls with these filters, with all columns and hashes of users";
  return saveButton("Parquet", "calls.parquet", parameters, [() => name, "parquet"], { class: "csv", title, "aria-label": `Export ${name} as Parquet` });
}
