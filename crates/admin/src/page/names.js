// Names for the hashes of users, from a local file that the browser reads and sends nowhere.
import { h, text } from "./dom.js";
import { plural } from "./format.js";
import { sha256 } from "./sha256.js";

const STORED = "tokengauge-user-names";
const MAX_BYTES = 2_000_000;
const MAX_NAMES = 50_000;

let names = new Map(stored());

function stored() {
  try {
    return Object.entries(JSON.parse(localStorage.getItem(STORED)) ?? {});
  } catch {
    return [];
  }
}

/** The name of a user, or its hash if the name is unknown. */
export const userName = (user) => names.get(user) ?? user;
/** The name of a value of any dimension. */
export const nameIn = (dimension, value) => (dimension === "user" ? userName(value) : value);

/** The hash of a user as in records: 32 hexadecimal digits. */
const hashOf = (user) => sha256(`tokengauge user\0${user}`).slice(0, 32);

/** Parses lines of `USER` or `USER = NAME`, like `tokengauge report --user-names`; `#` starts a comment. */
function parsed(lines) {
  const found = lines.split(/\r?\n/).map((line) => line.trim()).filter((line) => line && !line.startsWith("#"));
  if (found.length > MAX_NAMES) throw new Error(`the file has more than ${MAX_NAMES} users`);
  return new Map(found.map((line) => {
    const at = line.indexOf(" = ");
    const [user, name] = at < 0 ? [line, line] : [line.slice(0, at).trimEnd(), line.slice(at + 3).trimStart()];
    return [hashOf(user), name.slice(0, 200)];
  }));
}

/** The form for the file, for storing its names in the browser, and for forgetting them. */
export function namesForm() {
  const said = h("span", { class: "muted", role: "status" });
  const keep = h("input", { type: "checkbox", checked: names.size > 0, on: { change: () => (remember(keep.checked), show()) } });
  const file = h("input", { type: "file", accept: ".txt,text/plain", on: { change: () => choose() } });
  const forget = h("button", { type: "button", class: "csv", on: { click: () => (take(new Map()), (file.value = "")) } }, "Forget names");
  const show = (problem) => {
    text(said, problem ?? (names.size > 0 ? `${plural(names.size, "name")}` : ""));
    said.classList.toggle("problem", Boolean(problem));
    forget.hidden = names.size === 0;
  };
  const take = (found) => {
    names = found;
    const kept = remember(keep.checked);
    show(kept ? null : "This browser cannot store the names. They are lost when the page is closed.");
    document.dispatchEvent(new Event("names"));
  };
  const choose = async () => {
    const [chosen] = file.files;
    if (!chosen) return;
    try {
      if (chosen.size > MAX_BYTES) throw new Error("the file is larger than 2 MB");
      take(parsed(await chosen.text()));
    } catch (error) {
      show(`${chosen.name} cannot be used: ${error.message}`);
    }
  };
  show();
  const title = "A text file with one user per line, as agents send it, or USER = NAME. The file stays in the browser and is sent nowhere";
  return h("div", { class: "names", role: "group", "aria-label": "Names of users" }, h("label", { title }, "Names of users from a file ", file), h("label", {}, keep, " Store names on this computer"), forget, said);
}

/** Stores the names in the browser or removes them. Returns whether that worked. */
function remember(wanted) {
  try {
    if (wanted && names.size > 0) localStorage.setItem(STORED, JSON.stringify(Object.fromEntries(names)));
    else localStorage.removeItem(STORED);
    return true;
  } catch {
    return !wanted;
  }
}
