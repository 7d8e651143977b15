// What the prompt of a call consists of: a bar of its parts, and a table of its tools.
import { h } from "./dom.js";
import { count, percent, plural, seconds, usd } from "./format.js";
import { CAUSES } from "./words.js";

/** The parts in the order of the bar, with the words for them. */
export const PARTS = {
  system: "system prompt",
  tool_schemas: "tool definitions",
  user: "user",
  assistant: "assistant",
  reasoning: "reasoning",
  tool_calls: "tool calls",
  tool_results: "tool results",
  other: "other",
};

const WAITS = { tools: "for tools", human: "for a person", other: "of the agent" };

/** The facts of a call's analysis, as name, value and explanation. */
export function analysisFacts({ wait, cache_break: missed, retry_of: retry }, link) {
  return [
    ["Wait before the call", wait ? seconds(wait.seconds) : null, wait ? [WAITS[wait.kind], wait.tools.join(", ")].filter(Boolean).join(": ") : null],
    ["Cache miss", missed ? `${count(missed.tokens)} tokens` : null, missed ? [CAUSES[missed.cause], missed.section, usd(missed.cost_usd)].filter(Boolean).join(", ") : null],
    ["Repeats", retry ? link(retry) : null, retry ? "the same request, which failed" : null],
  ];
}

/** The parts of a prompt; nothing if it was not analyzed. */
export function promptParts(prompt) {
  const total = prompt ? Object.keys(PARTS).reduce((sum, part) => sum + prompt[part], 0) : 0;
  if (total <= 0) return [];
  const parts = Object.keys(PARTS).map((part, at) => ({ part, tokens: prompt[part], color: `var(--series-${at + 1})` })).filter(({ tokens }) => tokens > 0);
  const bar = parts.map(({ tokens, color }) => h("i", { style: { width: `${(tokens / total) * 100}%`, background: color } }));
  const keys = parts.map(({ part, tokens, color }) => h("li", {}, h("i", { class: "box", style: { background: color } }), PARTS[part], h("b", {}, count(tokens)), percent(tokens / total)));
  const media = prompt.media > 0 ? `, and ${plural(prompt.media, "image, sound or file", "images, sounds and files")}` : "";
  return [
    h("h3", { id: "prompt-title" }, "Prompt"),
    h("p", { class: "note" }, `${count(total)} tokens by the proxy's count${media}.`),
    h("div", { class: "split prompt", "aria-hidden": "true" }, bar),
    h("ul", { class: "keys phases", "aria-labelledby": "prompt-title" }, keys),
    ...(prompt.tools.length > 0 ? [toolTable(prompt.tools, total)] : []),
  ];
}

function toolTable(tools, total) {
  const head = ["Tool", "Definition", "New results", "Sent again", "Share", "Calls", "Failures"].map((name, at) => h("th", { scope: "col", class: at ? "num" : null }, name));
  const rows = tools.map((tool) => {
    const all = tool.schema + tool.new_results + tool.resent_results;
    const figures = [count(tool.schema), count(tool.new_results), count(tool.resent_results), percent(all / total), count(tool.calls), count(tool.failures)];
    return h("tr", {}, h("th", { scope: "row" }, tool.name, tool.server ? h("span", { class: "muted" }, ` of ${tool.server}`) : null), figures.map((figure) => h("td", { class: "num" }, figure)));
  });
  const label = "Tools of the prompt, in tokens";
  return h("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, h("table", { class: "prompt-tools" }, h("caption", { class: "vh" }, label), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
}
