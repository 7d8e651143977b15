// Explanations of the values that the API uses.
import { count, percent, plural } from "./format.js";

/** Why a call has no TPS: a short form and a sentence. `measure` has the settings. */
export function unavailable(word, measure = {}) {
  const least = count(measure.min_output_tokens) ?? "the configured minimum of";
  const most = count(measure.buffered_above) ?? "any model's number of";
  const words = {
    not_streamed: ["not streamed", "The response was not streamed, so there is no first token to measure from."],
    too_few_tokens: ["too few tokens", `Fewer than ${least} tokens came after the first chunk. That is not enough to measure a speed.`],
    too_few_frames: ["too few chunks", "Fewer than 4 chunks contained tokens. That is not enough to measure a speed."],
    buffered: ["buffered", `More than ${most} tokens per second arrived: the stream was buffered before the proxy and sent in a burst.`],
    multiple_choices: ["several choices", "The response has several interleaved choices, so the speed of one stream is unknown."],
    hidden_output: ["hidden output", "Far more output tokens were reported than streamed, such as hidden reasoning."],
    agent_limited: ["agent too slow", "The agent read so slowly that the proxy had to wait for it, so the model's speed is unknown."],
    lagged: ["not measured", "The proxy was too busy to measure every chunk. Forwarding takes precedence."],
    unparsed: ["not parsed", "The format of the body is unknown, or the body could not be decoded. It was forwarded unchanged."],
    ended_early: ["ended early", "The call failed or was cancelled before there were enough tokens."],
  };
  return words[word] ?? [word ?? "unknown", "The proxy gave no reason."];
}

/** Why a call has no cost: a short form and a sentence. */
export function unpriced(word) {
  const words = {
    not_billed: ["not billed", "The upstream was not reached or refused the call."],
    no_price: ["without a price", "The model has no price, neither configured nor in the built-in list."],
    no_tokens: ["without tokens", "A token count that the price depends on is unknown."],
    service_tier: ["of a tier without a price", "The price of the service tier is unknown."],
    modality: ["with audio, images or video", "Audio, images or video are billed at prices that are unknown."],
    hosted_tools: ["with the provider's tools", "The provider's own tools are billed at a price that is unknown."],
    region: ["of a region without a price", "The price of the region that processed the call is unknown."],
  };
  return words[word] ?? [word ?? "unknown", "The record has no reason."];
}

export const OUTCOMES = {
  complete: ["complete", "good"],
  client_cancelled: ["client cancelled", "warn"],
  upstream_reset: ["upstream reset", "bad"],
  error_event: ["error event", "bad"],
  http_error: ["HTTP error", "bad"],
  timeout: ["timeout", "bad"],
  rejected: ["rejected", "warn"],
  unreachable: ["unreachable", "bad"],
  drained: ["drained", "bad"],
};

export const outcome = (word) => OUTCOMES[word] ?? [word, "warn"];

/** Bands of TPS, as the API defines them. */
export const BANDS = [
  { from: 0, to: 5, name: "frustrating" },
  { from: 5, to: 15, name: "slow" },
  { from: 15, to: 30, name: "comfortable" },
  { from: 30, to: 60, name: "fast" },
  { from: 60, to: null, name: "instant" },
];

export const bandName = (from) => BANDS.findLast((band) => band.from <= (from ?? 0))?.name ?? "instant";

export const PHASES = {
  queue: "queue: waiting in the engine",
  connect: "connect: connecting to the upstream",
  upload: "upload: sending the request",
  prefill: "prefill: time to first token",
  reasoning: "reasoning",
  answer: "answer",
  other: "other",
};

/** Why a prompt missed the cache. */
export const CAUSES = {
  other_model: "another model answered",
  other_upstream: "another upstream or endpoint",
  idle: "idle for longer than the cache lifetime",
  prefix_changed: "the prompt prefix changed, or the provider evicted it",
  changed: "the prompt changed",
  evicted: "the provider evicted an unchanged prompt",
};

/** Who took the time before a call. */
export const WAITS = { tools: "tools", human: "people", other: "between calls" };

/** Tool names of a record, joined by `+` there. */
export const toolNames = (tools) => tools?.split("+").join(", ") ?? "";

/** The remaining budget in words. For an overspent budget, the words are the exceeded share. */
export function budget(left) {
  const kind = left <= 0 ? "bad" : left < 0.25 ? "warn" : "good";
  if (left > 0) return { value: percent(left), unit: "left", kind };
  return { value: left === 0 ? "spent" : `over by ${percent(-left)}`, unit: "", kind };
}

/** The limits of calls without a ledger. */
export const inMemory = (measure, of = "") => `At most the last ${count(measure?.recent_calls) ?? ""} calls${of} are in memory; a ledger keeps more`;

/** What an answer repeats. */
export const repeats = ({ period, tokens }) => `repeats ${plural(period, "token")} for ${count(tokens)}`;

export const silence = (threshold) => `silent for over ${Number((threshold ?? 1).toFixed(2))} s`;
