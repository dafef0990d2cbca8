// Requests, what the caches answered of them, and what that saved.

import { shareBar, timeChart } from "../charts.js";
import { clear, empty, figure, figures, h, panel } from "../dom.js";
import { count, dollars, duration, moment, seconds, share } from "../units.js";

export const title = "Overview";

const RANGES = [["15m", "15 min"], ["1h", "1 h"], ["6h", "6 h"], ["24h", "24 h"]];
const KINDS = [
  ["exact", "Exact hit"], ["semantic", "Semantic hit"], ["collapsed", "Collapsed"], ["stale", "Stale hit"],
  ["miss", "Miss"], ["bypass", "Bypass"], ["error", "Error"],
];
const POSTS = [
  ["without-caches", "Would have been spent without caches"],
  ["saved-exact", "Saved by the exact tier"],
  ["saved-semantic", "Saved by the semantic tier"],
  ["saved-prefix", "Saved by the prefix tier"],
  ["prefix-writes", "Cost of prefix cache writes"],
  ["audit", "Cost of audits"],
  ["judge", "Cost of judges"],
  ["keep-warm", "Cost of keeping prefixes warm"],
  ["warm", "Cost of warming prefixes"],
  ["lookup", "Cost of semantic lookups"],
  ["spent", "Spent on callers' model calls"],
];

export async function render(main, api) {
  const wanted = new URLSearchParams(location.search).get("range");
  let range = RANGES.some(([name]) => name === wanted) ? wanted : "15m";
  let stop = null;
  const told = h("span", { class: "over grow" });
  const choices = h("div", { class: "choices", role: "group", "aria-label": "Time range" });
  const view = drawn();
  const place = h("div", { class: "page" });
  main.append(h("div", { class: "bar" }, choices, told), place);

  function choose() {
    clear(choices, RANGES.map(([name, label]) => h("button", {
      type: "button", "aria-pressed": name === range ? "true" : "false", onclick: () => pick(name),
    }, label)));
  }

  async function pick(name) {
    range = name;
    history.replaceState(null, "", `?range=${name}`);
    choose();
    choices.querySelector("[aria-pressed=true]")?.focus();
    stop?.();
    update(await api.get(`overview?range=${name}`));
    stop = api.live(take, name);
  }

  function take(value) {
    if (value.range === range) update(value);
  }

  function update(value) {
    const [, label] = RANGES.find(([name]) => name === value.range);
    told.textContent = `Over the last ${label}. The proxy counts since ${moment(value.since)}, for ${duration(value.now - value.since)}.`;
    if (!place.firstChild) place.append(view.node);
    view.update(value, label);
  }

  choose();
  update(await api.get(`overview?range=${range}`));
  stop = api.live(take, range);
  return () => stop?.();
}

// The panels are made once and filled again at each event: nothing jumps, focus stays.
function drawn() {
  const sums = h("div");
  const requests = timeChart(nothing("Requests by tier and outcome", count));
  const rate = timeChart(nothing("Hit rate", share));
  const money = timeChart(nothing("Money", dollars));
  const own = timeChart(nothing("Time that Trivet took", seconds));
  const upstream = timeChart(nothing("Time that upstreams took", seconds));
  const quantiles = h("div", { class: "scroll" });
  const posts = h("div", { class: "scroll" });
  const flush = h("div");
  const state = h("div");
  const hint = h("div");
  const failing = h("div");
  const overs = Array.from({ length: 5 }, () => h("span"));
  const node = h("div", { class: "page" }, hint, failing, sums,
    panel("Requests by tier and outcome", overs[0], requests),
    h("div", { class: "grid2" },
      panel("Hit rate", overs[1], rate),
      panel("If the caches were emptied now", null, flush)),
    h("div", { class: "grid2" },
      panel("Money", overs[2], money, posts),
      panel("Latency: ours and the upstreams'", overs[3], quantiles,
        h("h3", null, "Ours, 95th percentile"), own, h("h3", null, "Upstreams', 95th percentile"), upstream)),
    panel("State of the proxy", "asked now", state));

  function update(value, label) {
    const { total } = value;
    const bucket = `each bar ${duration(value.width)}, last ${label}`;
    const base = { first: value.first, width: value.width, since: value.since };
    clear(hint, total.requests ? null : empty(`No request in the last ${label}`,
      "Point an application's base URL at the proxy's data port; its first request shows here within 5 seconds."));
    clear(failing, failures(value.failures));
    clear(sums, summary(total, label));
    overs[0].textContent = bucket;
    overs[1].textContent = `of the requests that a cache may answer, ${bucket.replace("bar", "point")}`;
    overs[2].textContent = bucket.replace("bar", "point");
    overs[3].textContent = `last ${label}; all but the mean are read off buckets`;
    requests.update({ ...base, label: "Requests by tier and outcome", stacked: true, format: count, height: 220,
      series: KINDS.filter(([kind]) => total.kinds[kind] || kind === "exact" || kind === "miss")
        .map(([kind, name]) => ({ kind, name, values: value.requests[kind], total: count(total.kinds[kind]) })) });
    rate.update({ ...base, label: "Hit rate", format: (one) => share(one, 0), most: 1, height: 160,
      series: [{ kind: "exact", name: "Hit rate", values: value.hit_rate, total: total.hit_rate === null ? "no request" : share(total.hit_rate) }] });
    money.update({ ...base, label: "Money spent, and what would have been spent", format: dollars, height: 150, series: [
      { kind: "saved", name: "Without caches", values: finished(value.money.without), total: dollars(total.money["without-caches"]) },
      { kind: "spent", name: "Spent", values: finished(value.money.spent), total: dollars(total.money.spent) },
    ] });
    clear(posts, account(total.money));
    own.update({ ...base, label: "Trivet's own time, 95th percentile", format: seconds, height: 110,
      series: [{ kind: "own", name: "Trivet's own time", values: value.own_p95 }] });
    upstream.update({ ...base, label: "Upstream's time, 95th percentile", format: seconds, height: 110,
      series: [{ kind: "upstream", name: "Upstream's time", values: value.upstream_p95 }] });
    clear(quantiles, latency(total.latency));
    clear(flush, flushed(value, total));
    clear(state, states(value.state));
  }
  return { node, update };
}

// A line over sums leaves out the bucket that is not over yet: it would seem to fall.
function finished(values) {
  return values.map((one, index) => (index === values.length - 1 ? null : one));
}

function nothing(label, format) {
  return { first: 0, width: 1, since: 0, series: [{ name: label, kind: "exact", values: [] }], format, label };
}

function summary(total, label) {
  const over = `last ${label}`;
  const answered = total.kinds.exact + total.kinds.semantic + total.kinds.collapsed + total.kinds.stale;
  const tokens = total.saved_tokens.input + total.saved_tokens.output;
  const spent = total.tokens.input + total.tokens.output;
  const { seconds: waited, money } = total;
  return figures(
    figure("Requests", count(total.requests), over),
    figure("Hit rate", total.hit_rate === null ? "none yet" : share(total.hit_rate),
      `${count(answered)} of ${count(answered + total.kinds.miss)} that a cache may answer, ${over}`),
    figure("Tokens saved", count(tokens), `of ${count(tokens + spent)} without caches, ${over}`),
    figure("Money saved, net", dollars(money["net-saved"]), `spent ${dollars(money.spent)} of ${dollars(money["without-caches"])}, ${over}`),
    figure("Waiting saved", waited.saved === null ? "unknown" : seconds(waited.saved),
      waited.saved === null ? `no model call in the ${over} to compare with`
        : `${seconds(waited.was)} of ${seconds(waited.without)}; a hit counts as the mean call of ${seconds(waited.mean_call)}, ${over}`),
    figure("Failed", count(total.failed), `answered 500 and above, ${over}`, total.failed ? "bad" : ""),
  );
}

function failures({ of, rows }) {
  if (!rows.length) return null;
  const failed = rows.reduce((sum, [, , number]) => sum + number, 0);
  const told = rows.map(([upstream, reason, number]) => `${upstream || "no upstream"}: ${reason || "no reason"} (${count(number)})`);
  return h("p", { class: `notice ${failed / of > 0.1 ? "bad" : ""}` },
    `Of the last ${count(of)} requests ${count(failed)} failed. ${told.join("; ")}. `,
    h("a", { href: "/trivet/ui/explain?outcome=failed" }, "See which"));
}

function account(money) {
  const rows = POSTS.filter(([post]) => money[post] || post === "spent" || post === "without-caches");
  return h("table", null, h("tbody", null, rows.map(([post, name]) =>
    h("tr", null, h("th", { scope: "row" }, name), h("td", { class: "number" }, dollars(money[post]))))));
}

function latency(told) {
  const rows = [["hit", "Ours, for a hit"], ["other", "Ours, for the rest"], ["upstream", "Upstreams'"]];
  return h("table", null,
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Time"), ["Mean", "Median", "95 %", "99 %", "Requests"].map((name) => h("th", { scope: "col", class: "number" }, name)))),
    h("tbody", null, rows.map(([part, name]) => h("tr", null, h("th", { scope: "row" }, name),
      ["mean", "p50", "p95", "p99"].map((at) => h("td", { class: "number" }, told[part][at] === null ? "none" : seconds(told[part][at]))),
      h("td", { class: "number" }, count(told[part].count))))));
}

function flushed(value, total) {
  const { flush } = value;
  if (!flush) return h("p", { class: "dim" }, "No process has told.");
  // The last finished minute or more says what the load is now.
  const buckets = Math.max(1, Math.ceil(60 / value.width));
  const recent = (kind) => value.requests[kind].slice(-1 - buckets, -1).reduce((sum, one) => sum + one, 0);
  const perMinute = 60 / (buckets * value.width);
  const calls = recent("miss") * perMinute;
  const all = calls + ["exact", "semantic", "collapsed", "stale"].reduce((sum, kind) => sum + recent(kind), 0) * perMinute;
  const parts = [
    all ? null : h("p", null, `No request that a cache may answer in the last ${duration(buckets * value.width)}.`),
    !all ? null : h("p", null, h("b", null, `${count(all)} model calls a minute`), ` would be made in place of ${count(calls)}`, h("span", { class: "over" }, ` (mean of the last ${duration(buckets * value.width)})`)),
    !all ? null : shareBar([{ name: "Model calls now", value: calls, kind: "miss", title: `${count(calls)} calls a minute reach the model now` },
      { name: "Kept off the model", value: all - calls, kind: "exact", title: `${count(all - calls)} requests a minute are kept off the model` }],
    { label: `${count(calls)} of ${count(all)} requests a minute reach the model now` }),
    flush.baseline_known
      ? h("p", null, `Of a usual hit share of ${share(flush.baseline)}, an empty cache sends ${flush.load.toFixed(1)} times the usual load to the model.`)
      : h("p", { class: "dim" }, "The usual hit share is not known yet: it takes a minute of traffic."),
    h("p", { class: "dim" }, flush.max_calls === null
      ? "No limit is set for that case (flood.max_calls)."
      : `At most ${count(flush.max_calls)} model calls at once are let through then (flood.max_calls); ${count(flush.in_flight)} in flight, ${count(flush.waiting)} waiting, ${count(flush.shed)} refused since the start.`),
  ];
  if (flush.flooded) parts.unshift(h("p", { class: "notice bad" }, `The caches are cold: the hit share is ${share(flush.share)}, usual is ${share(flush.baseline)}.`));
  return parts;
}

function states(state) {
  return h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, ["Part", "State", "What it means"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, state.components.map((part) => h("tr", null, h("th", { scope: "row" }, part.name),
      h("td", null, h("span", { class: `tag ${part.state === "up" ? "good" : part.ok ? "warn" : "bad"}` }, part.state)),
      h("td", null, part.detail))))));
}
