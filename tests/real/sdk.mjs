// One call through a vendor's JavaScript SDK: reads the request as JSON, writes the caller's result as JSON.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { sdk, base, streamed, prompt, maxTokens } = JSON.parse(readFileSync(0, "utf8"));
const options = { apiKey: "none", maxRetries: 0, timeout: 60_000 };
const messages = [{ role: "user", content: prompt }];

async function collected(stream) {
  const objects = [];
  for await (const one of stream) objects.push(one);
  return objects;
}

async function openaiChat() {
  const client = new OpenAI({ ...options, baseURL: `${base}/v1` });
  const ask = { model: "tiny", messages, temperature: 0, seed: 1, max_tokens: maxTokens };
  if (!streamed) {
    const whole = await client.chat.completions.create(ask);
    return { objects: [whole], answer: whole.choices[0].message.content, ...chatUsage(whole.usage) };
  }
  const stream = { stream: true, stream_options: { include_usage: true } };
  const objects = await collected(await client.chat.completions.create({ ...ask, ...stream }));
  const answer = objects.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join("");
  return { objects, answer, ...chatUsage(objects.findLast((chunk) => chunk.usage).usage) };
}

const chatUsage = (usage) => ({ input: usage.prompt_tokens, output: usage.completion_tokens });
const usageOf = (usage) => ({ input: usage.input_tokens, output: usage.output_tokens });

async function openaiResponses() {
  const client = new OpenAI({ ...options, baseURL: `${base}/v1` });
  const ask = { model: "tiny", input: prompt, temperature: 0, max_output_tokens: maxTokens };
  if (!streamed) {
    const whole = await client.responses.create(ask);
    return { objects: [whole], answer: whole.output_text, ...usageOf(whole.usage) };
  }
  const objects = await collected(await client.responses.create({ ...ask, stream: true }));
  const deltas = objects.filter((event) => event.type === "response.output_text.delta");
  return { objects, answer: deltas.map((event) => event.delta).join(""), ...usageOf(objects.at(-1).response.usage) };
}

async function anthropic() {
  const client = new Anthropic({ ...options, baseURL: base });
  const ask = { model: "tiny", messages, temperature: 0, max_tokens: maxTokens };
  const text = (message) => message.content.map((block) => block.text ?? "").join("");
  if (!streamed) {
    const whole = await client.messages.create(ask);
    return { objects: [whole], answer: text(whole), ...usageOf(whole.usage) };
  }
  const stream = client.messages.stream(ask);
  const objects = await collected(stream);
  const whole = await stream.finalMessage();
  return { objects, answer: text(whole), ...usageOf(whole.usage) };
}

const calls = { "openai chat": openaiChat, "openai responses": openaiResponses, anthropic };
try {
  console.log(JSON.stringify(await calls[sdk]()));
} catch (error) {
  if (!(error instanceof OpenAI.APIError || error instanceof Anthropic.APIError)) throw error;
  if (error.status === undefined) throw error;
  console.log(JSON.stringify({ error: `${error.constructor.name} ${error.status} ${JSON.stringify(error.error)}` }));
}
