// What the proxy's words mean, for those who see them for the first time.
import { count, percent } from "./format.js";

/** Why a call has no TPS: a short form and a sentence. `measure` holds the settings. */
export function unavailable(word, measure = {}) {
  const least = count(measure.min_output_tokens) ?? "the configured minimum of";
  const most = count(measure.buffered_above) ?? "any model's number of";
  const words = {
    not_streamed: ["not streamed", "The answer came as one body: there is no first token to measure from."],
    too_few_tokens: ["too few tokens", `Fewer than ${least} tokens came after the first chunk: too short to tell a speed.`],
    too_few_frames: ["too few chunks", "Fewer than 4 chunks carried tokens: their spacing says nothing."],
    buffered: ["held back", `More than ${most} tokens per second arrived: something upstream held the stream back and let it go in a burst.`],
    multiple_choices: ["several choices", "Several choices were asked for and interleave: there is no speed of one stream."],
    hidden_output: ["hidden output", "Far more output was reported than streamed: the model thought where nobody could see it."],
    agent_limited: ["agent too slow", "The agent read so slowly that the proxy had to wait for it: what came says nothing of the model's speed."],
    lagged: ["not measured", "The proxy was too busy to look at every chunk. Traffic went first."],
    unparsed: ["not understood", "The body's format is unknown, or it could not be decoded. It was forwarded all the same."],
    ended_early: ["ended early", "An error or a cancel came before there were enough tokens."],
  };
  return words[word] ?? [word ?? "unknown", "The proxy gave no reason."];
}

/** Why a call has no cost: a short form and a sentence. */
export function unpriced(word) {
  const words = {
    not_billed: ["not billed", "The upstream was not reached or refused the call."],
    no_price: ["without a price", "The model has no price, neither configured nor in the built-in list."],
    no_tokens: ["without tokens", "A number of tokens that the price depends on is unknown."],
    service_tier: ["of a tier without a price", "The price of the service tier is unknown."],
    modality: ["with audio, images or video", "Audio, images or video are billed at prices that are unknown."],
    hosted_tools: ["with the provider's tools", "The provider's own tools are billed at a price that is unknown."],
    region: ["of a region without a price", "The price of the region that processed the call is unknown."],
  };
  return words[word] ?? [word ?? "unknown", "The record has no reason."];
}

export const OUTCOMES = {
  complete: ["complete", "good"],
  client_cancelled: ["agent left", "warn"],
  upstream_reset: ["upstream broke off", "bad"],
  error_event: ["error in the stream", "bad"],
  http_error: ["HTTP error", "bad"],
  timeout: ["timeout", "bad"],
  rejected: ["refused", "warn"],
  unreachable: ["unreachable", "bad"],
  drained: ["cut by a restart", "bad"],
};

export const outcome = (word) => OUTCOMES[word] ?? [word, "warn"];

/** Bands of experience in tokens per second, as the API cuts them. */
export const BANDS = [
  { from: 0, to: 5, name: "frustrating" },
  { from: 5, to: 15, name: "slow" },
  { from: 15, to: 30, name: "comfortable" },
  { from: 30, to: 60, name: "fast" },
  { from: 60, to: null, name: "instant" },
];

export const bandName = (from) => BANDS.findLast((band) => band.from <= (from ?? 0))?.name ?? "instant";

export const PHASES = {
  queue: "queue: the engine had not begun",
  connect: "connect: a connection to the upstream",
  upload: "upload: sending the request",
  prefill: "prefill: until the first token",
  reasoning: "reasoning",
  answer: "answer",
  other: "other",
};

/** What is left of a budget, in words; one that is overspent is over by a share of itself. */
export function budget(left) {
  const kind = left <= 0 ? "bad" : left < 0.25 ? "warn" : "good";
  if (left > 0) return { value: percent(left), unit: "left", kind };
  return { value: left === 0 ? "spent" : `over by ${percent(-left)}`, unit: "", kind };
}

/** What is known of calls where no ledger keeps them. */
export const inMemory = (measure, of = "") => `At most the last ${count(measure?.recent_calls) ?? ""} calls${of}, in memory; a ledger remembers more`;

export const silence = (threshold) => `silent for over ${Number((threshold ?? 1).toFixed(2))} s`;
