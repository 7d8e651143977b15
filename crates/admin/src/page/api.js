// All requests to the process. Paths are relative, so the page works behind a path prefix.

/** The base URL of the page, independent of a path prefix and of the view. */
export const BASE = new URL("../", import.meta.url);

const KEY = "tokengauge-token";
let memory = null; // used if the browser forbids storage
const listeners = new Set();

/** An error of the API or of the connection; `status` is 0 without a response. */
export class Failed extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function token() {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory;
  }
}

export function keepToken(value) {
  memory = value;
  try {
    if (value === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, value);
  } catch {
    // the token is kept until the page is closed
  }
}

/** Calls `ask(message)` when the address needs a token. */
export const whenRefused = (ask) => listeners.add(ask);

/** The response of `path`. Throws `Failed` with the reason if there is none. */
export async function open(path, parameters = {}, signal = undefined) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  const shown = token();
  const headers = shown ? { authorization: `Bearer ${shown}` } : {};
  let response;
  try {
    response = await fetch(url, { headers, signal, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "the proxy does not respond");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const message = told?.error?.message ?? `the proxy answered ${response.status}`;
  if (response.status === 401) listeners.forEach((ask) => ask(shown ? message : ""));
  throw new Failed(response.status, message);
}

export async function get(path, parameters, signal) {
  const response = await open(`api/v1/${path}`, parameters, signal);
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "the response is incomplete");
  }
}
