// The calls in flight and their present speed.
import { sessionHref } from "./address.js";
import { h, meter } from "./dom.js";
import { placeOf } from "./pods.js";
import { Table } from "./table.js";
import { count, known, rate, seconds, short } from "./format.js";
import { bandName, repeats, silence } from "./words.js";

const SHOWN = 200;

export class Streams {
  constructor(host) {
    this.threshold = 1;
    this.fastest = 60;
    this.note = h("p", { class: "note" });
    this.table = new Table(host, {
      label: "Streams in flight, newest first",
      tall: true,
      param: "streams",
      key: (stream) => stream.id,
      nothing: () => "No streams are in flight.",
      columns: [
        { id: "model", label: "Model", head: true, clip: true, sort: (s) => s.model ?? "", text: (s) => s.model, why: () => "the model is not known yet" },
        { id: "route", label: "Route", wide: true, sort: (s) => s.route, text: (s) => (s.route === s.upstream ? s.route : `${s.route} → ${s.upstream}`) },
        { id: "session", label: "Session", wide: true, clip: true, sort: (s) => s.session, text: (s) => s.session, why: () => "the request names no session", node: (s) => h("a", { href: sessionHref(s.session), title: s.session }, short(s.session)) },
        { id: "pod", label: "Pod", wide: true, clip: true, fleet: true, sort: (s) => placeOf(s.pod), text: (s) => placeOf(s.pod), why: () => "not reported by the pod" },
        { id: "tps", label: "TPS now", num: true, sort: (s) => s.tps, text: (s) => rate(s.tps), why: () => "known after the second chunk with tokens", node: (s) => this.speed(s) },
        { id: "tokens", label: "Tokens", num: true, sort: (s) => s.tokens.output, text: (s) => count(s.tokens.output) },
        { id: "seconds", label: "Duration", num: true, wide: true, sort: (s) => s.seconds, text: (s) => whole(s.seconds) },
        { id: "state", label: "State", text: (s) => this.state(s)[0], node: (s) => h("span", { class: `tag ${this.state(s)[1]}` }, this.state(s)[0]) },
      ],
    });
    host.append(this.note);
  }

  speed(stream) {
    return h("span", {}, meter(stream.tps / this.fastest, "", "speed wide"), h("span", { class: "figure" }, rate(stream.tps)));
  }

  state({ silent, tokens, tps, repetition }) {
    if (repetition) return [repeats(repetition), "bad"];
    if (!known(silent)) return ["waiting for the first token", ""];
    if (silent > this.threshold) return [`${silence(this.threshold)}`, "warn"];
    if (tokens.reasoning > 0 && tokens.answer + tokens.tool_call === 0) return ["reasoning", ""];
    return [known(tps) ? bandName(tps) : "streaming", ""];
  }

  update(streams, total) {
    const speeds = streams.map(({ tps }) => tps).filter(known);
    this.fastest = Math.max(this.fastest * 0.98, ...speeds, 60);
    this.table.update(streams.slice(0, SHOWN));
    this.note.textContent = total > SHOWN ? `The newest ${SHOWN} of ${count(total)} streams are shown.` : "";
  }
}

const whole = (n) => (n < 60 ? `${Math.floor(n)} s` : seconds(n));
