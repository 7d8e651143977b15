// Scores from outside, in words.
import { h } from "./dom.js";
import { count, known, percent } from "./format.js";

/** An average or a single value. Averages of booleans are shares. */
const figure = (value, type) => (type === "boolean" ? percent(value) : known(value) ? String(Number(value.toPrecision(3))) : null);

/** The averages of a group, as a text by which a table sees changes. */
export const averages = ({ scores = [] }) => (scores.length > 0 ? scores.map((one) => `${one.name} ${figure(one.average, one.data_type)} ${one.lower} ${one.upper} ${one.units}`).join(", ") : null);

/** The averages of a group with their intervals. */
export function averageList({ scores = [] }) {
  const range = ({ lower, upper, data_type: type }) => (known(lower) ? `${figure(lower, type)} to ${figure(upper, type)}` : "the interval is unknown");
  const title = (one) => `${range(one)} (95% interval); ${count(one.scores)} scores in ${count(one.units)} sessions`;
  return h("span", {}, scores.map((one) => h("span", { class: "score", title: title(one) }, `${one.name} `, h("b", {}, figure(one.average, one.data_type)))));
}

/** The facts about the scores of a call or a session: name, value, and where each comes from. */
export function scoreFacts(scores = []) {
  const words = ({ value, data_type: type }) => (type === "boolean" ? (value === 1 ? "true" : "false") : figure(value, type));
  const about = ({ target, source }) => [target === "call" ? null : `of the ${target}`, source ? `from ${source}` : null].filter(Boolean).join(", ") || null;
  return scores.map((one) => [`Score ${one.name}`, words(one), about(one)]);
}
