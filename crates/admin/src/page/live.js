// Events as they happen, by server-sent events over `fetch`, since `EventSource` sends no
// token; where that does not work, by asking again and again.
import { Failed, get, open } from "./api.js";

const POLL_EVERY = 2000;
const AGAIN_AFTER = [500, 1000, 2000, 5000, 10_000];
const SILENT_FOR = 20_000; // streams come every second, objectives every five

/** Splits a byte stream into events: `yield`s `{event, data}`. */
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

/** What `waiting` gives; the link has failed when it gives nothing for too long. */
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
  /** `take(event, data)` for each event; `tell(state, message)` when the link changes. */
  constructor(take, tell) {
    Object.assign(this, { take, tell, tries: 0, running: false, connected: false });
  }

  start() {
    if (this.running) return;
    this.running = true;
    this.follow();
  }

  /** At once, after a token was given or the tab came back. */
  again() {
    this.tries = 0;
    this.stop?.abort();
    clearTimeout(this.timer);
    this.follow();
  }

  /** Nobody looks: browsers allow an address only a few connections. */
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

  /** Asks until events come; what is answered after they came is not shown. */
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
    clearTimeout(this.poller); // of a question asked meanwhile
    this.poller = setTimeout(() => this.poll(), POLL_EVERY);
  }
}
