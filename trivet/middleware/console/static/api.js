// How the pages ask the proxy. A request that changes something carries the console's mark.

const ROOT = "/trivet/ui/";
const listeners = new Set();
let feed = null;
let fedWith = "";
let overview = "";
let state = "off";
let last = 0;
let check = null;

// What the proxy said was wrong, or that it could not be asked.
export class Refused extends Error {
  constructor(status, message, code, field) {
    super(message);
    this.status = status;
    this.code = code;
    this.field = field;
  }
}

function address(path) {
  return path.startsWith("/") ? path : `${ROOT}api/${path}`;
}

async function ask(method, path, body) {
  const asked = { method, credentials: "same-origin", cache: "no-store", headers: {} };
  if (method !== "GET") asked.headers["X-Trivet-Console"] = "1";
  if (body !== undefined) {
    asked.headers["Content-Type"] = "application/json";
    asked.body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(address(path), asked);
  } catch {
    throw new Refused(0, "The proxy does not answer.", "unreachable");
  }
  const text = await reply.text();
  let value = null;
  try {
    value = text ? JSON.parse(text) : null;
  } catch {
    throw new Refused(reply.status, `The proxy answered ${reply.status}, not in JSON.`);
  }
  // A reload that keeps the old policies answers 422 and says so in its own words.
  if (!reply.ok && !(value && value.ok === false)) {
    const error = value?.error ?? {};
    if (reply.status === 401 && error.code === "unauthorized" && path !== `${ROOT}session`) {
      window.dispatchEvent(new CustomEvent("trivet-logged-out"));
    }
    throw new Refused(reply.status, error.message ?? `The proxy answered ${reply.status}.`, error.code, error.field);
  }
  return value;
}

export const api = {
  // `path` is a page's name with its query, or an absolute path of the admin API.
  get: (path) => ask("GET", path),
  post: (path, body) => ask("POST", path, body),
  delete: (path) => ask("DELETE", path),

  // Calls `callback` with the overview's JSON every few seconds; returns how to stop that.
  // `range` is the overview's; pages that only want to know when to look again leave it out.
  live(callback, range = "15m") {
    listeners.add(callback);
    connect(`range=${encodeURIComponent(range)}`);
    return () => {
      listeners.delete(callback);
      if (!listeners.size) close();
    };
  },
};

function connect(query) {
  if (feed && fedWith === query) return;
  close();
  fedWith = query;
  tell("connecting");
  feed = new EventSource(`${ROOT}events?${query}`);
  feed.addEventListener("overview", (event) => {
    overview = event.data;
    last = Date.now();
    tell("live");
    const value = JSON.parse(overview);
    for (const listener of [...listeners]) listener(value);
  });
  feed.addEventListener("problem", (event) => tell("trouble", JSON.parse(event.data).error.message));
  feed.addEventListener("error", () => {
    tell("lost");
    // A feed that was refused is not opened again by the browser.
    if (feed?.readyState === EventSource.CLOSED) again();
  });
  check ??= setInterval(() => {
    if (state === "live" && Date.now() - last > 20_000) tell("lost");
  }, 5_000);
}

function again() {
  const query = fedWith;
  close();
  setTimeout(async () => {
    if (!listeners.size || feed) return;
    try {
      const session = await ask("GET", `${ROOT}session`);
      if (!session.open) window.dispatchEvent(new CustomEvent("trivet-logged-out"));
      else connect(query);
    } catch {
      fedWith = query;
      again();
    }
  }, 3_000);
}

function close() {
  feed?.close();
  feed = null;
}

function tell(now, message) {
  state = now;
  window.dispatchEvent(new CustomEvent("trivet-live", { detail: { state: now, message } }));
}

export function quiet() {
  listeners.clear();
  close();
  tell("off");
}

document.addEventListener("visibilitychange", () => {
  if (!listeners.size) return;
  if (document.hidden) close();
  else connect(fedWith);
});
