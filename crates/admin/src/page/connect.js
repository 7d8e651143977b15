// The addresses and routes of the proxy, as settings to copy.
import { h } from "./dom.js";

const SHOWN = 8;

export function connect(host, about) {
  const listener = about.listeners[0];
  if (about.fleet) return host.replaceChildren(h("p", {}, "No calls were found yet. The view ", h("a", { href: "pods" }, "Pods"), " shows the pods and the store."));
  if (!listener) return host.replaceChildren(h("p", {}, "The proxy has no address for agents."));
  const base = address(listener);
  const ways = about.routes.map((route) => way(base, route));
  const more = about.listeners.slice(1).map(address);
  host.replaceChildren(
    h("p", {}, "Agents connect at ", h("code", {}, base), more.length > 0 ? [" or ", h("code", {}, more.join(", "))] : null, ". Change only the base URL. API keys are forwarded unchanged."),
    h("div", { class: "ways" }, ways.slice(0, SHOWN)),
    ways.length > SHOWN ? h("details", {}, h("summary", {}, `${ways.length - SHOWN} more routes`), h("div", { class: "ways" }, ways.slice(SHOWN))) : "",
    h("p", { class: "note" }, "Without an agent: ", h("code", {}, "tokengauge demo"), " runs simulated agents against a simulated backend."),
  );
}

/** The URL of a listener. If it listens on all addresses, the host name of the page is used. */
function address({ address, tls }) {
  const [, host, port] = address.match(/^(.*):(\d+)$/);
  const any = host === "0.0.0.0" || host === "[::]";
  const name = any ? location.hostname : host;
  return `${tls ? "https" : "http"}://${name}:${port}`;
}

function way(base, route) {
  const demands = [route.host ? `host ${route.host}` : null, ...route.headers.map((name) => `header ${name}`)].filter(Boolean);
  const facts = Object.entries(route.upstream_facts ?? {}).filter(([, said]) => said !== null).map(([name, said]) => `${name.replaceAll("_", " ")} ${said}`);
  return h(
    "div",
    { class: "way" },
    h("h3", {}, route.name, h("p", { class: "to" }, `→ ${route.urls.join(", ")}`), demands.length > 0 ? h("p", { class: "to" }, `only with ${demands.join(", ")}`) : null, facts.length > 0 ? h("p", { class: "to" }, facts.join(", ")) : null),
    copyable(setting(base + route.path, route)),
  );
}

/** The setting for the SDK of such an upstream. */
function setting(url, route) {
  const about = `${route.urls.join(" ")} ${route.name} ${route.upstream} ${route.dialect ?? ""}`.toLowerCase();
  const known = SETTINGS.find(([pattern]) => pattern.test(about));
  return known ? known[1](url, route) : `OPENAI_BASE_URL=${url}/v1`;
}

const SETTINGS = [
  [/groq/, (url) => `OPENAI_BASE_URL=${url}/openai/v1`],
  [/openrouter/, (url) => `OPENAI_BASE_URL=${url}/api/v1`],
  [/deepseek|perplexity/, (url) => `OPENAI_BASE_URL=${url}`],
  [/anthropic/, (url) => `ANTHROPIC_BASE_URL=${url}`],
  [/gemini|generativelanguage/, (url) => `genai.Client(http_options={"base_url": "${url}"})`],
  [/mistral/, (url) => `Mistral(server_url="${url}")`],
  [/cohere/, (url) => `cohere.ClientV2(base_url="${url}")`],
  [/bedrock/, bedrock],
  [/ollama|:11434/, (url) => `OLLAMA_HOST=${url.replace(/^http:\/\//, "")}`],
];

// boto3 signs the host and the path, and sends a bearer token only over TLS.
function bedrock(url, route) {
  const { origin, protocol } = new URL(url);
  if (protocol === "https:") return `boto3.client("bedrock-runtime", endpoint_url="${url}")`;
  const endpoint = `http://${new URL(route.urls[0]).host}`;
  return `boto3.client("bedrock-runtime", endpoint_url="${endpoint}", config=Config(proxies={"http": "${origin}"}))`;
}

function copyable(line) {
  const button = h("button", { type: "button", "aria-label": `Copy ${line}` }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy"; // the clipboard needs TLS or localhost
      getSelection().selectAllChildren(code);
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
  const code = h("code", {}, line);
  return h("div", { class: "copy" }, code, button);
}
