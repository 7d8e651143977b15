// An incident as one file: what is shown, frozen, for those who were not there.
import { open } from "./api.js";
import { saveFile } from "./csv.js";
import { h, text } from "./dom.js";

/** A button that saves the incident of `parameters()`: an objective, or a time. */
export function capsuleButton(parameters, label = "Save the incident as a file") {
  const said = h("span", { class: "muted", role: "status" });
  const save = async () => {
    text(said, " …");
    try {
      const response = await open("api/v1/capsule", parameters());
      saveFile(await response.blob(), "incident", "html");
      text(said, "");
    } catch (error) {
      text(said, ` Cannot be saved: ${error.message}`);
    }
  };
  const title = "One HTML file with curves, cause, budget, the worst calls, marks, the configuration and commands; without prompts, answers and keys";
  return h("span", { class: "capsule" }, h("button", { type: "button", title, on: { click: save } }, label), said);
}
