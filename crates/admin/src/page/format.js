// Formats numbers for people. Unknown is null and never becomes 0.

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false });
const exactClock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

export const known = (value) => typeof value === "number" && Number.isFinite(value);
const of = (write) => (value) => (known(value) ? write(value) : null);

export const count = of((n) => (Math.abs(n) < 10_000 ? whole.format(n) : compact.format(n)));

export const rate = of((n) => (n !== 0 && n < 10 ? n.toFixed(1) : whole.format(n)));

/** A rate per second. */
export const frequency = of((n) => (n === 0 || n >= 10 ? whole.format(n) : n < 0.1 ? n.toFixed(4) : n.toFixed(2)));

export const percent = of((n) => {
  const share = n * 100;
  if (share > 0 && share < 0.1) return "<0.1%";
  if (share > 99.99 && share < 100) return ">99.99%";
  // Availability such as 99.96% must not be rounded up to 100%.
  if (share > 99 && share < 100) return `${share < 99.9 ? Math.floor(share * 10) / 10 : Math.floor(share * 100) / 100}%`;
  return `${Number(Math.abs(share) < 1000 ? share.toFixed(Math.abs(share) < 10 ? 1 : 0) : share.toPrecision(3))}%`;
});

/** A configured share with all its digits. */
export const promised = of((n) => `${Number((n * 100).toPrecision(12))}%`);

export const usd = of((n) => {
  if (n === 0) return "$0";
  if (n < 0.0001) return "<$0.0001";
  if (n < 0.01) return `$${n.toFixed(4)}`;
  if (n < 1) return `$${n.toFixed(3)}`;
  return n < 100 ? `$${n.toFixed(2)}` : `$${whole.format(n)}`;
});

export const seconds = of((n) => {
  if (n === 0) return "0 s";
  if (n < 0.0995) return `${n < 0.00995 ? (n * 1000).toFixed(1) : Math.round(n * 1000)} ms`;
  if (n < 0.9995) return `${Math.round(n * 1000)} ms`;
  if (n < 59.95) return `${n.toFixed(n < 9.995 ? 2 : 1)} s`;
  const all = Math.round(n);
  const [h, m, s] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (h >= 48) return `${Math.round(h / 24)} d`;
  return h > 0 ? `${h} h ${String(m).padStart(2, "0")} m` : `${m} m ${String(s).padStart(2, "0")} s`;
});

/** The time of day, with the date if it is not today; `at` is RFC 3339 or milliseconds. */
export function time(at, exact = false) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return null;
  const text = (exact ? exactClock : clock).format(date);
  return date.toDateString() === new Date().toDateString() ? text : `${day.format(date)}, ${text}`;
}

export const date = (at) => day.format(new Date(at));

export function ago(at) {
  const since = (Date.now() - new Date(at).getTime()) / 1000;
  if (Number.isNaN(since)) return null;
  if (since < 5) return "just now";
  if (since < 90) return `${Math.round(since)} s ago`;
  if (since < 5400) return `${Math.round(since / 60)} min ago`;
  return since < 129_600 ? `${Math.round(since / 3600)} h ago` : `${Math.round(since / 86_400)} d ago`;
}

export const plural = (n, one, many = `${one}s`) => `${count(n) ?? "–"} ${n === 1 ? one : many}`;

/** A shortened id for tables. Ids made from times differ at the end. */
export const short = (id) => (id.length > 26 ? `${id.slice(0, 10)}…${id.slice(-12)}` : id);

export const list = (names, most = 2) =>
  names.length > most ? `${names.slice(0, most).join(", ")} +${names.length - most}` : names.join(", ");
