// Two turns by the Vercel AI SDK: `vercel.mjs ADDRESS SESSION`. Prints the usage that the SDK reports.
import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";

const [base, session] = process.argv.slice(2);
const openai = createOpenAI({ baseURL: `${base}/v1`, apiKey: "none" });
const used = { calls: 0, input: 0, output: 0 };
const messages = [];
for (const content of ["What do boats carry on this river?", "And in winter?"]) {
  messages.push({ role: "user", content });
  const result = streamText({
    model: openai.responses("gpt-5.1"),
    messages,
    providerOptions: { openai: { promptCacheKey: session, user: "ada", store: false } },
  });
  messages.push({ role: "assistant", content: await result.text });
  const usage = await result.usage;
  used.calls += 1;
  used.input += usage.inputTokens;
  used.output += usage.outputTokens;
}
console.log(JSON.stringify(used));
