// Live events over `fetch`, since `EventSource` cannot send a token. If they do not arrive, the page polls.
import { Failed, get, open } from "./api.js";

const POLL_EVERY = 2000;
const AGAIN_AFTER = [500, 1000, 2000, 5000, 10_000];
const SILENT_FOR = 20_000; // streams come every second, objectives every five seconds

/** Splits a byte stream into server-sent events `{event, data}`. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await answered(reader.read());
    if (done) return;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = block.split("\n").map((line) => line.split(/: ?(.*)/s));
      const data = fields.filter(([name]) => name === "data").map(([, value]) => value);
      const event = fields.find(([name]) => name === "event")?.[1] ?? "message";
      if (data.length > 0) yield { event, data: data.join("\n") };
    }
  }
}

/** The result of `waiting`. It fails after too long a silence. */
function answered(waiting) {
  let timer;
  const silent = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Failed(0, "the proxy stopped sending events")), SILENT_FOR);
  });
  return Promise.race([waiting, silent]).finally(() => {
    clearTimeout(timer);
  });
}

export class Live {
  /** `take(event, data)` is called for each event, `tell(state, message)` when the state of the connection changes. */
  constructor(take, tell) {
    Object.assign(this, { take, tell, tries: 0, running: false, connected: false });
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.follow();
  }

  /** Connects immediately, after a token was entered or the tab became visible. */
  again() {
    this.tries = 0;
    this.stop?.abort();
    clearTimeout(this.timer);
    this.follow();
  }

  /** Disconnects a hidden page, since browsers limit the connections to one address. */
  rest() {
    this.stop?.abort();
    clearTimeout(this.timer);
    clearTimeout(this.poller);
    this.resting = true;
  }

  async follow() {
    this.resting = false;
    this.connected = false;
    const stop = new AbortController();
    this.stop = stop;
    try {
      const response = await answered(open("api/v1/events", {}, stop.signal));
      this.tries = 0;
      this.connected = true;
      clearTimeout(this.poller);
      this.tell("live");
      for await (const { event, data } of events(response.body)) this.take(event, JSON.parse(data));
    } catch (error) {
      if (stop.signal.aborted) return;
      if (error.status === 401) return this.tell("lost", "a token is required");
      console.debug("events:", error.message);
    }
    stop.abort();
    this.connected = false;
    if (this.resting) return;
    this.poll();
    const wait = AGAIN_AFTER[Math.min(this.tries++, AGAIN_AFTER.length - 1)];
    this.timer = setTimeout(() => this.follow(), wait);
  }

  /** Polls until events arrive. Responses that come after an event are dropped. */
  async poll() {
    clearTimeout(this.poller);
    const idle = () => this.resting || this.connected;
    if (idle()) return;
    try {
      const [streams, slos, calls] = await Promise.all([get("streams", { limit: 1000 }), get("slos"), get("calls", { limit: 50 })]);
      if (idle()) return;
      this.tell("polling");
      this.take("streams", streams);
      this.take("slos", slos);
      this.take("calls", calls);
    } catch (error) {
      if (error.status === 401 || idle()) return;
      this.tell("lost", error.message);
    }
    clearTimeout(this.poller); // of a poll that was started in between
    this.poller = setTimeout(() => this.poll(), POLL_EVERY);
  }
}
