// Tenants: what each one's policy is, what it used, and what a pasted policy would change.

import { complain, go } from "../app.js";
import { clear, empty, figure, figures, h, panel, say } from "../dom.js";
import { facts, table } from "../table.js";
import { bytes, count, dollars, duration, moment, share } from "../units.js";

export const title = "Tenants";

const PAGE = "/trivet/ui/tenants";

export async function render(main, api) {
  const wanted = new URLSearchParams(location.search).get("tenant");
  return wanted === null ? everyone(main, api) : one(main, api, wanted);
}

function counted(value) {
  return `counted since ${moment(value.since)}, ${duration(value.now - value.since)} ago`;
}

// ---- all tenants

async function everyone(main, api) {
  let all = [];
  const search = h("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter tenants by name", oninput: () => list.update(kept()) });
  const told = h("span", { class: "over grow" });
  const list = table({
    caption: "Tenants", rows: [], none: "No tenant has that in its name.", sorted: { column: 1, down: true },
    onpick: (row) => go(`${PAGE}?tenant=${encodeURIComponent(row.tenant)}`),
    columns: [
      { name: "Tenant", cell: (row) => row.tenant, by: (row) => row.tenant },
      { name: "Requests", number: true, cell: (row) => count(row.total.requests), by: (row) => row.total.requests },
      { name: "Hit rate", number: true, cell: (row) => (row.total.hit_rate === null ? "none" : share(row.total.hit_rate)), by: (row) => row.total.hit_rate },
      { name: "Failed", number: true, cell: (row) => h("span", { class: row.total.failed ? "bad-text" : "" }, count(row.total.failed)), by: (row) => row.total.failed },
      { name: "Tokens saved", number: true, cell: (row) => count(row.total.saved_tokens.input + row.total.saved_tokens.output), by: (row) => row.total.saved_tokens.input + row.total.saved_tokens.output },
      { name: "Saved, net", number: true, cell: (row) => dollars(row.total.money["net-saved"]), by: (row) => row.total.money["net-saved"] },
      { name: "Spent", number: true, cell: (row) => dollars(row.total.money.spent), by: (row) => row.total.money.spent },
      { name: "Semantic", cell: (row) => row.semantic ?? "", by: (row) => row.semantic },
      { name: "Policy file", cell: (row) => (row.declared ? "yes" : "no"), by: (row) => row.declared },
    ],
  });
  const place = h("div", { class: "page" });
  main.append(place);

  function kept() {
    const text = search.value.trim().toLowerCase();
    return text ? all.filter((row) => row.tenant.toLowerCase().includes(text)) : all;
  }

  function update(value) {
    all = value.tenants;
    told.textContent = `${all.length} ${all.length === 1 ? "tenant" : "tenants"}, ${counted(value)}. Policies: version ${value.version}.`;
    list.update(kept());
  }

  const first = await api.get("tenants");
  const reading = h("button", { type: "button", onclick: () => reload(api, look) }, "Read the policy files again");
  place.append(
    first.tenants.length ? h("section", { class: "panel" }, h("div", { class: "bar" }, search, told, first.declared ? reading : null), list)
      : empty("No tenant yet", "Without a directory of policies each credential is its own tenant; it is listed with its first request.",
        "With one (trivet serve --policies DIRECTORY) each file is a tenant."),
    checker(api));
  update(first);
  async function look() {
    try {
      update(await api.get("tenants"));
    } catch { /* the bar at the top says that the proxy does not answer */ }
  }
  return api.live(look);
}

async function reload(api, then) {
  try {
    const result = await api.post("/trivet/reload", {});
    if (result.ok) say(`The policies are read: version ${result.version}.`);
    else complain(`The old policies stay in use. ${result.detail}`);
    await then();
  } catch (error) {
    complain(error.message, () => reload(api, then));
  }
}

// ---- one tenant

async function one(main, api, tenant) {
  const value = await api.get(`tenants/one?tenant=${encodeURIComponent(tenant)}`);
  const used = h("div");
  const limits = h("div");
  const fill = (now) => {
    clear(used, use(now));
    clear(limits, quotas(now));
  };
  main.append(
    h("div", { class: "bar" }, h("a", { href: PAGE }, "All tenants"), h("h2", { class: "grow" }, tenant), purger(api, tenant)),
    used,
    h("div", { class: "grid2" },
      panel("Versions", "part of every key of this tenant", Object.keys(value.versions).length
        ? facts(Object.entries(value.versions)) : h("p", { class: "dim" }, "The policy names none (versions).")),
      panel("Quotas and what is used", "now", limits)),
    value.declared ? policy(value) : panel("Policy", null, h("p", { class: "dim" }, "No policy file declares this tenant: it has the defaults.")),
    checker(api, tenant));
  fill(value);
  return api.live(async () => {
    try {
      fill(await api.get(`tenants/one?tenant=${encodeURIComponent(tenant)}`));
    } catch { /* the bar at the top says that the proxy does not answer */ }
  });
}

function use(value) {
  const { total } = value;
  return [figures(
    figure("Requests", count(total.requests), total.failed ? `${count(total.failed)} answered 500 and above` : "none failed"),
    figure("Hit rate", total.hit_rate === null ? "none yet" : share(total.hit_rate), "of what a cache may answer"),
    figure("Tokens of models", count(total.tokens.input + total.tokens.output), `${count(total.tokens.input)} in, ${count(total.tokens.output)} out, ${count(total.tokens.cache_read)} read from prefix caches`),
    figure("Tokens saved", count(total.saved_tokens.input + total.saved_tokens.output), `${count(total.saved_tokens.input)} in, ${count(total.saved_tokens.output)} out`),
    figure("Money saved, net", dollars(total.money["net-saved"]), `spent ${dollars(total.money.spent)} of ${dollars(total.money["without-caches"])}`),
  ), h("p", { class: "hint" }, `All of this tenant, ${counted(value)}.`)];
}

function quotas(value) {
  const { limits } = value;
  const rows = [["Requests in flight", count(value.in_flight), limits.requests_in_flight]];
  for (const store of value.stores) {
    rows.push([`Entries in ${store.name}`, store.error ? `unknown: ${store.error}` : count(store.entries), limits.entries]);
    rows.push([`Size in ${store.name}`, store.error ? `unknown: ${store.error}` : bytes(store.bytes), limits.bytes, bytes]);
  }
  if (limits.bytes_in_flight) rows.push(["Request bodies in flight", "not told", limits.bytes_in_flight, bytes]);
  return h("table", null,
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "What"), h("th", { scope: "col", class: "number" }, "Used"), h("th", { scope: "col", class: "number" }, "At most"))),
    h("tbody", null, rows.map(([name, used, most, unit = count]) => h("tr", null, h("th", { scope: "row" }, name),
      h("td", { class: "number" }, used), h("td", { class: "number" }, most === null || most === undefined ? "no bound of its own" : unit(most))))));
}

const TIME = /(?:^|[._])(?:ttl|stale_if_error|wait|window|every|timeout)$/;
const SIZE = /(?:^|\.)(?:bytes|bytes_in_flight|max_entry)$/;

function written(value, name = "") {
  if (value === null) return "none";
  if (typeof value === "number" && value >= 60 && TIME.test(name)) return `${value} s (${duration(value)})`;
  if (typeof value === "number" && value >= 1024 && SIZE.test(name)) return `${value} B (${bytes(value)})`;
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function policy(value) {
  const place = h("div");
  const only = h("input", { type: "checkbox", id: "only", checked: true, onchange: () => draw() });
  const rows = () => value.settings.filter((one) => !only.checked || !one.default);
  function draw() {
    clear(place, table({
      caption: "Settings of the effective policy", rows: rows(), size: 200, none: "Every setting has its default.",
      columns: [
        { name: "Setting", cell: (row) => h("code", null, row.name) },
        { name: "Value", cell: (row) => written(row.value, row.name), kind: "wrap" },
        { name: "", cell: (row) => (row.default ? h("span", { class: "dim" }, "default") : "") },
      ],
    }));
  }
  draw();
  return panel("Effective policy", `version ${value.version} of all policies`,
    h("label", { class: "check", for: "only" }, only, " Only what differs from the defaults"), place);
}

function purger(api, tenant) {
  const place = h("div", { class: "row" });
  const ask = () => clear(place, h("button", { type: "button", onclick: sure }, "Purge all entries"));
  function sure() {
    clear(place, h("span", null, `Forget every stored answer of ${tenant}?`),
      h("button", { type: "button", class: "danger", onclick: act }, "Purge"), h("button", { type: "button", onclick: ask }, "Keep them"));
    place.querySelector("button").focus();
  }
  async function act() {
    try {
      const result = await api.post("/trivet/purge", { tenant });
      clear(place, h("span", { class: "tag good", role: "status" }, `${count(result.deleted)} entries purged`));
    } catch (error) {
      complain(error.message);
      ask();
    }
  }
  ask();
  return place;
}

// ---- a pasted policy

function checker(api, tenant) {
  const text = h("textarea", { id: "policy", rows: 12, spellcheck: "false", autocomplete: "off", autocapitalize: "off",
    placeholder: `tenant: ${tenant ?? "name"}\nexact:\n  ttl: 1h` });
  const place = h("div", { "aria-live": "polite" });
  const button = h("button", { type: "submit" }, "Check");
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      clear(place, result(await api.post("tenants/check", { text: text.value }), text));
    } catch (error) {
      clear(place, h("p", { class: "notice bad" }, error.message));
    } finally {
      button.disabled = false;
    }
  } }, h("label", { for: "policy" }, "A policy file's text (YAML)"), text, h("div", { class: "bar after" }, button), place);
  return panel("Check a policy", "as trivet check does, with the other files that are there; nothing is changed", form);
}

function result(found, text) {
  const parts = [];
  const what = found.replaces ? `It would replace the policy of ${found.tenant} (${found.file}).`
    : found.tenant ? `It would be a new tenant, ${found.tenant}; the differences are those to the defaults.` : "";
  if (found.ok) parts.push(h("p", { class: "notice good" }, `The policy is fine. ${what}`));
  else parts.push(h("p", { class: "notice bad" }, `${found.problems.length} ${found.problems.length === 1 ? "problem" : "problems"}: such a file would be refused, and the old policies kept. ${what}`));
  for (const [list, kind] of [[found.problems, "bad"], [found.warnings, "warn"]]) {
    if (list.length) parts.push(h("ul", { class: "findings" }, list.map((one) => finding(one, kind, text))));
  }
  if (found.changes.length) parts.push(differences(found.changes));
  else if (found.ok) parts.push(h("p", { class: "dim" }, found.replaces ? "It is the policy in use: nothing would change." : "It sets nothing but defaults."));
  return parts;
}

function finding(one, kind, text) {
  const place = one.line ? `${one.pasted ? "line" : `${one.file} line`} ${one.line}, column ${one.column}` : one.pasted ? "the text" : one.file;
  const jump = one.line && one.pasted ? h("button", { type: "button", class: "link", onclick: () => select(text, one.line) }, place) : h("span", null, place);
  return h("li", null, h("span", { class: `tag ${kind}` }, kind === "bad" ? "problem" : "warning"), " ", jump, ": ",
    one.field ? h("code", null, one.field) : null, one.field ? " " : null, one.message);
}

function select(text, line) {
  const lines = text.value.split("\n");
  const from = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
  text.focus();
  text.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
}

function differences(changes) {
  return h("div", { class: "scroll" }, h("table", { class: "diff" }, h("caption", { class: "unseen" }, "Differences"),
    h("thead", null, h("tr", null, ["Setting", "In use", "Pasted"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, changes.map((one) => h("tr", null, h("th", { scope: "row" }, h("code", null, one.name)),
      h("td", { class: "gone" }, written(one.before, one.name)), h("td", { class: "come" }, written(one.after, one.name)))))));
}
