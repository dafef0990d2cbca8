// Prefix caches: what share of each route's prompts was read from a cache and when it fell, why, the
// prompt's structure with its breakpoints, and the replicas.

import { shareChart, spark } from "../curves.js";
import { sides } from "../diff.js";
import { clear, empty, h, panel } from "../dom.js";
import { promptBar } from "../prompt_bar.js";
import { table } from "../table.js";
import { ago, clock, count, duration, moment, share } from "../units.js";

export const title = "Prefix";

const LIST_TICKS = 6; // of five seconds each

export async function render(main, api) {
  const query = new URLSearchParams(location.search);
  let [told, servers] = await Promise.all([api.get("prefix"), api.get("prefix/replicas")]);
  let stopped = false;
  const first = told.routes[0];
  const tenant = query.get("tenant") ?? first?.tenant, route = query.get("route") ?? first?.route;
  const replicas = h("div"), detail = h("div", { class: "page" });
  let view = null;
  if (first || (tenant && route)) {
    const routes = routeTable(told.routes, tenant, route);
    main.append(panel("Routes", `the last 24 hours, ${processes(told.workers)}`, routes), detail, replicas);
    view = await routeView(tenant, route, api);
    detail.append(view.node);
    view.routes = routes;
  } else {
    main.append(empty("No model call was seen since the proxy started", "Calls that an upstream answered are listed here by tenant and route (the Trivet-Route header, or the API).",
      "Answers out of the exact and the semantic tier send no prompt, so they are not among them."), replicas);
  }
  drawReplicas(replicas, servers);

  let ticks = 0;
  const refresh = async () => {
    ticks += 1;
    try {
      if (servers.upstreams.length) {
        servers = await api.get("prefix/replicas");
        if (stopped) return;
        drawReplicas(replicas, servers);
      }
      if (!view || ticks % LIST_TICKS === 0) {
        told = await api.get("prefix");
        if (stopped) return;
        if (!view && told.routes.length) {
          clear(main);
          leave();
          leave = await render(main, api);
          return;
        }
        view?.routes.update(told.routes);
      }
      await view?.refresh();
    } catch { /* the bar at the top says that the connection is lost */ }
  };
  let leave = api.live(refresh);
  return () => {
    stopped = true;
    leave();
  };
}

function processes(workers) {
  return workers === 1 ? "1 process" : `${workers} processes`;
}

function routeTable(rows, tenant, route) {
  const current = (row) => row.tenant === tenant && row.route === route;
  return table({
    caption: "Routes by prompt tokens",
    rows,
    size: 10,
    columns: [
      { name: "Route", by: (row) => row.route, cell: (row) => h("a", { href: address(row), "aria-current": current(row) ? "true" : null }, row.route) },
      { name: "Tenant", by: (row) => row.tenant, cell: (row) => row.tenant },
      { name: "Cached, 1 h", number: true, by: (row) => row.hour.share, cell: (row) => (row.hour.share === null ? "no traffic" : share(row.hour.share)) },
      { name: "Cached, 24 h", number: true, by: (row) => row.day.share, cell: (row) => (row.day.share === null ? "no traffic" : share(row.day.share)) },
      { name: "24 h", cell: (row) => spark(row) },
      { name: "Fell", by: (row) => row.fell?.at, cell: (row) => fellOf(row.fell) },
      { name: "Prompt tokens, 24 h", number: true, by: (row) => row.day.tokens, cell: (row) => count(row.day.tokens) },
      { name: "Calls, 24 h", number: true, by: (row) => row.day.calls, cell: (row) => count(row.day.calls) },
      { name: "Breaks kept", number: true, by: (row) => row.breaks, cell: (row) => count(row.breaks) },
    ],
  });
}

function address(row) {
  return `/trivet/ui/prefix?tenant=${encodeURIComponent(row.tenant)}&route=${encodeURIComponent(row.route)}`;
}

function fellOf(fell) {
  if (!fell) return "";
  const text = `${clock(fell.at)}: ${share(fell.before, 0)} to ${share(fell.behind, 0)}`;
  return h("span", { class: `tag ${fell.back ? "" : "bad"}` }, fell.back ? `${text}, back since` : text);
}

async function routeView(tenant, route, api) {
  let span = "1h", drawn = "";
  const over = h("div"), rest = h("div", { class: "page" });
  const choice = h("div", { class: "choices", role: "group", "aria-label": "Over which time" },
    [["15m", "15 min"], ["1h", "1 h"], ["6h", "6 h"], ["24h", "24 h"]].map(([value, text]) => h("button", { type: "button", "aria-pressed": String(value === span), onclick: (event) => choose(value, event.target) }, text)));
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const node = h("div", { class: "page" }, panel(`${route} of ${tenant}`, "share of prompt tokens that were read from a cache", choice, problem, over), rest);

  async function choose(value, button) {
    span = value;
    for (const one of choice.children) one.setAttribute("aria-pressed", String(one === button));
    await refresh();
  }

  async function refresh() {
    let told;
    try {
      told = await api.get(`prefix/route?tenant=${encodeURIComponent(tenant)}&route=${encodeURIComponent(route)}&span=${span}`);
      problem.hidden = true;
    } catch (error) {
      problem.hidden = false;
      problem.textContent = error.message;
      return;
    }
    clear(over, overTime(told));
    const text = JSON.stringify([told.breaks, told.seen, told.causes, told.keep_text]);
    if (text === drawn) return;
    drawn = text;
    clear(rest, newestPanel(told), breaksPanel(told));
  }

  await refresh();
  return { node, refresh };
}

function overTime(told) {
  if (!told.buckets.length) return h("p", { class: "note" }, `No model call in the last ${duration(told.width * told.count)}.`);
  const fell = told.fell;
  return [
    h("p", { class: "lead" }, `${share(told.all.share)} of ${count(told.all.tokens)} prompt tokens in ${count(told.all.calls)} calls. `,
      fell ? h("strong", { class: fell.back ? "" : "fell-text" }, `It fell at ${clock(fell.at)} from ${share(fell.before)} to ${share(fell.behind)}${fell.back ? ", and is back since" : ""}.`) : null),
    shareChart(told),
  ];
}

function newestPanel(told) {
  if (!told.seen) return panel("The newest prompt", null, h("p", { class: "note" }, "The layout doctor has not looked at a prompt of this route yet."));
  return panel("The newest prompt", `${told.seen.model}, ${told.seen.cache ? `cache of ${told.seen.cache}` : "of an upstream whose cache is not known"}, ${ago(told.seen.at)}`, promptBar(told.seen));
}

function breaksPanel(told) {
  if (!told.breaks.length && !told.causes.length) {
    return panel("Breaks", "since the start", empty("The doctor found no break on this route", "A break is a prompt that parts from an earlier one sooner than it had to."));
  }
  return panel("Breaks", `since the start, ${processes(told.workers)}; of each cause and place the newest in full`,
    h("div", { class: "scroll" }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Cause"), h("th", { scope: "col", class: "number" }, "Breaks"), h("th", { scope: "col", class: "number" }, "Tokens that could have been read, about"))),
      h("tbody", null, told.causes.map((one) => h("tr", null, h("th", { scope: "row" }, h("code", null, one.cause)), h("td", { class: "number" }, count(one.breaks)), h("td", { class: "number" }, count(one.lost_tokens))))))),
    told.keep_text ? null : h("p", { class: "note" }, "The policy does not let prompts be kept (prefix.keep_text), so a break is shown by its place in the prompt's structure, without text."),
    told.breaks.map(breakCard));
}

function breakCard(one) {
  return h("article", { class: "break" },
    h("header", null, h("time", { datetime: new Date(one.at * 1000).toISOString(), title: moment(one.at) }, ago(one.at)), h("strong", null, one.cause),
      h("code", null, one.place), h("span", { class: "numbers" }, `about ${count(one.shared_tokens)} tokens shared, ${count(one.lost_tokens)} lost`),
      one.times.length > 1 ? h("span", { class: "tag" }, `${count(one.times.length)} times since ${clock(one.times[one.times.length - 1], true)}`) : null),
    h("p", null, `${sentence(one.told)} `, h("span", { class: "fix" }, `To mend it: ${one.fix}.`)),
    one.quote ? quoteOf(one) : null, promptBar(one.shape));
}

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}.` : "";
}

function quoteOf(one) {
  const [older, newer] = sides(one.quote[0], one.quote[1], true);
  const from = one.start ? "… " : "";
  return h("div", { class: "texts" },
    h("div", null, h("h3", null, "The earlier prompt"), h("p", { class: "text" }, from, older.length ? older : h("span", { class: "note" }, "has no such part, or is not kept any more"))),
    h("div", null, h("h3", null, "This prompt"), h("p", { class: "text" }, from, newer)));
}

// ---- replicas

function drawReplicas(place, told) {
  if (!told.upstreams.length) {
    clear(place, panel("Replicas", null, h("p", { class: "note" }, "No upstream has replicas: each is one address.")));
    return;
  }
  clear(place, told.upstreams.map((upstream) => panel(`Replicas of ${upstream.upstream}`, `now; requests and tokens since the start, ${processes(told.workers)}`,
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Replicas of ${upstream.upstream}` }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Replica"), h("th", { scope: "col" }, "Health"),
        ["In flight", "At server", "Unread tokens", "Blocks sent", "Blocks told", "Requests", "Thought cached", "Trust"].map((name) => h("th", { scope: "col", class: "number" }, name)))),
      h("tbody", null, upstream.replicas.map(replicaRow)))),
    h("p", { class: "note" }, "In flight: requests of this proxy. At server: those and others', as its metrics tell. Unread tokens: about how much of their prompts it has not read yet. Blocks sent: pieces of prompts that this proxy sent there, by process. Blocks told: those that its KV events say it holds. Trust: how much of what was thought cached was found cached."))));
}

function replicaRow(one) {
  const requests = Object.values(one.requests).reduce((all, each) => all + each, 0);
  const reasons = Object.entries(one.requests).map(([reason, each]) => `${reason} ${count(each)}`).join(", ");
  return h("tr", null, h("th", { scope: "row" }, one.replica), h("td", null, healthOf(one)),
    h("td", { class: "number" }, count(one.in_flight)), h("td", { class: "number" }, count(one.at_server)), h("td", { class: "number" }, count(one.waiting_tokens)),
    h("td", { class: "number" }, one.routed_blocks.map(count).join(" / ")), h("td", { class: "number" }, one.held_blocks === null ? "no events" : count(one.held_blocks)),
    h("td", { class: "number", title: reasons }, count(requests)),
    h("td", { class: "number" }, one.tokens ? share(one.known_tokens / one.tokens) : "no prompt"),
    h("td", { class: "number" }, one.trust === null ? "not told" : share(one.trust, 0)));
}

function healthOf(one) {
  if (one.up === one.processes) {
    return one.weight < 1 ? h("span", { class: "tag warn" }, `up, taking ${share(one.weight, 0)} of its load`) : h("span", { class: "tag good" }, "up");
  }
  const where = one.processes === 1 ? "" : ` for ${one.processes - one.up} of ${one.processes} processes`;
  return h("span", { class: "tag bad" }, `not asked${where}${one.reason ? `: ${one.reason}` : ""}`);
}
