// Explain: the last requests with what became of them, and the way of a pasted one past the tiers.

import { clear, empty, h, panel, say } from "../dom.js";
import { facts, table } from "../table.js";
import { ago, count, duration, moment, seconds, share } from "../units.js";

export const title = "Explain";

const EXAMPLE = `{
  "model": "gpt-4o-mini",
  "temperature": 0,
  "messages": [{"role": "user", "content": "What is your refund policy?"}]
}`;
const OUTCOMES = ["hit", "miss", "bypass", "stale", "collapsed", "error"];
const BY = {
  key: "by its API key", gateway: "named by the gateway", own: "each credential is its own tenant",
  anonymous: "no credential given", chosen: "chosen on this page",
};
const MEANING = {
  hit: "answered from what was stored", miss: "nothing stored fits, so the request went on",
  bypass: "the tier took no part", request: "the request asked not to be answered from it",
  stale: "what was stored is too old", collapsed: "shared another caller's model call",
};
const NOT_LOOKED = {
  off: "The policy leaves the semantic tier off.", "no-lookup": "The exact tier does not look up this request, so this one does not either.",
  loading: "The semantic tier is not open in that process.", nobody: "Nobody has this credential.",
  tools: "The request offers tools.", turns: "The conversation is too long for the policy.", "too-large": "The request is too large.",
};

export async function render(main, api) {
  const query = new URLSearchParams(location.search);
  const detail = h("div", { "aria-live": "polite" });
  const first = await api.get("explain");
  const recent = recents(first, api, (row) => pick(row), query);
  main.append(paste(first, api), detail, recent.node);

  function pick(row) {
    history.replaceState(null, "", row.id ? `?id=${encodeURIComponent(row.id)}` : location.pathname);
    clear(detail, past(row));
    detail.scrollIntoView({ block: "nearest" });
    say("The request's way is shown above the list");
  }

  const wanted = query.get("id");
  if (wanted) {
    try {
      const found = await api.get(`explain/one?id=${encodeURIComponent(wanted)}`);
      clear(detail, past({ ...found.request, tiers: found.tiers }));
    } catch (error) {
      clear(detail, h("p", { class: "notice" }, error.message));
    }
  }
  return api.live(recent.look);
}

// ---- a pasted request

function paste(first, api) {
  const text = h("textarea", { id: "request", rows: 11, spellcheck: "false", autocomplete: "off", autocapitalize: "off", placeholder: EXAMPLE });
  const tenant = h("select", { id: "tenant" }, h("option", { value: "" }, "whom its headers name"), first.tenants.map((name) => h("option", { value: name }, name)));
  const look = h("input", { type: "checkbox", id: "look" });
  const button = h("button", { type: "submit" }, "Explain");
  const place = h("div", { "aria-live": "polite" });
  if (first.tenants.length) tenant.selectedIndex = 1;
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    if (!text.value.trim()) text.value = EXAMPLE;
    button.disabled = true;
    try {
      clear(place, way(await api.post("explain", { request: text.value, tenant: tenant.value || null, look: look.checked })));
    } catch (error) {
      clear(place, h("p", { class: "notice bad" }, error.field ? [h("code", null, error.field), ": "] : null, error.message));
    } finally {
      button.disabled = false;
    }
  } },
  h("label", { for: "request" }, "A request's body, or an object of path, headers and body (JSON)"), text,
  h("div", { class: "row after" },
    h("div", { class: "field" }, h("label", { for: "tenant" }, "It is of"), tenant),
    h("label", { class: "check", for: "look" }, look, " Look for a similar question too (asks the embedder)"),
    button), place);
  return panel("Explain a request", "nothing is sent to a model, nothing is stored", form);
}

function way(told) {
  if (told.tenant === null) {
    return h("p", { class: "notice bad" }, "401: no tenant has this credential, so nothing else is decided. Put the API key into the request's headers, or choose a tenant.");
  }
  const tier = Object.fromEntries(told.tiers.map((one) => [one.tier, one]));
  return h("ol", { class: "way" },
    step("Who asks", told.tenant, "good", facts([
      ["Tenant", `${told.tenant} (${BY[told.identified_by] ?? told.identified_by})`], ["End user", told.user],
      ["API", `${told.api}${told.api_guessed ? ", told by the body's fields" : ""}: ${told.path}`],
      ["Route", told.route === told.path ? null : told.route], ["Model", told.model], ["Delivery", told.stream ? "stream" : "JSON"],
      ["Upstream", told.upstream], ["Versions", versions(told)],
      ["Rules that match", told.rules.map((one) => `exact.rules[${one}]`).join(", ")],
    ]), told.repairs.length ? fold(`Changed by the policy (prefix.repair)`, h("pre", null, told.repairs.join("\n"))) : null),
    step("Exact", verdict(tier.exact), tier.exact.open ? "good" : "warn", h("p", null, sentence(tier.exact.detail)),
      told.chosen ? h("p", { class: "hint" }, "The key below is that of a caller without a credential of its own: one whose credential goes upstream has another.") : null,
      facts([...told.keys.map((key, index) => [index ? "" : told.keys.length > 1 ? "Keys" : "Key", h("code", null, key)]),
        ["Kept for", told.ttl === null ? null : duration(told.ttl)], ["Purge labels", told.labels.join(", ")]]),
      fold(`In the key: ${told.key_fields.length} fields`, facts(told.key_fields)),
      fold(`Left out of the key: ${told.left_out.length} fields of the body, ${told.headers_left_out.length + told.headers_ignored.length} headers`, leftOut(told)),
      fold("Settings for this request", facts(Object.entries(told.settings).map(([name, value]) => [name, plain(value)])))),
    step("Semantic", verdict(tier.semantic), tier.semantic.open ? "good" : "warn", h("p", null, sentence(tier.semantic.detail)), looked(told.looked)),
    step("Prefix", verdict(tier.prefix), tier.prefix.open ? "good" : "warn",
      told.prefix?.length ? h("ul", { class: "bullets" }, told.prefix.map((one) => h("li", null, sentence(one)))) : h("p", null, sentence(tier.prefix.detail))),
    step("Upstream", told.upstream || "none", "", h("p", null, "What no tier answers goes there; the answer is stored if it is complete and the policy keeps it.")));
}

function step(name, what, kind, ...content) {
  return h("li", null, h("div", { class: "step-head" }, h("h3", null, name), h("span", { class: `tag ${kind}` }, what)), content);
}

function verdict(tier) {
  if (tier.open) return tier.reason || "takes part";
  return tier.reason ? `takes no part: ${tier.reason}` : "takes no part";
}

function looked(found) {
  if (!found) return null;
  if (!("gate" in found)) return h("p", { class: "dim" }, NOT_LOOKED[found.reason] ?? `Not looked up: ${found.reason}.`);
  const { gate, neighbour } = found;
  const score = (value) => (value === null || value === undefined ? null : value.toFixed(4));
  return h("div", { class: "looked" }, h("h4", null, "Looked up now"), facts([
    ["Compared text", found.asked],
    ["Gate", gate ? `${gate.intent}, ${gate.admitted ? "admitted" : `refused: ${gate.reason}`} (${share(gate.score)} sure)` : `not asked: ${found.reason}`],
    ["Nearest question", neighbour ? neighbour.text ?? "there is one; the policy does not keep its text (semantic.store_text)" : "none in this partition"],
    ["Cosine", neighbour ? score(neighbour.cosine) : null],
    ["Asked", neighbour ? `${moment(neighbour.created)}, ${ago(neighbour.created)}` : null],
    ["Score of the chain", score(found.score)], ["Threshold", score(found.threshold)],
    ["Decision", h("b", null, `${found.kind}${found.reason ? `: ${found.reason}` : ""}`)],
  ]));
}

function leftOut(told) {
  return h("div", null, told.left_out.length ? facts(told.left_out.map((one) => [one.field, one.why])) : h("p", null, "Every field of the body is in the key."),
    told.headers_left_out.length ? h("p", null, `Headers: ${told.headers_left_out.join(", ")}`) : null,
    told.headers_ignored.length ? h("p", null, `Headers that the policy leaves out (exact.ignore_headers): ${told.headers_ignored.join(", ")}`) : null);
}

function versions(told) {
  return [...Object.entries(told.policy_versions).map(([name, value]) => `${name}=${value} (policy)`),
    ...Object.entries(told.request_versions).map(([name, value]) => `${name}=${value} (request)`)].join(", ");
}

function fold(summary, ...content) {
  return h("details", null, h("summary", null, summary), content);
}

function plain(value) {
  if (Array.isArray(value)) return value.length ? value.join(", ") : "none";
  return value === null ? "none" : String(value);
}

function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}

// ---- the last requests

function recents(first, api, onpick, query) {
  let all = [];
  const known = (name, options) => h("select", { "aria-label": name, onchange: () => list.update(kept()) },
    h("option", { value: "" }, `Every ${name}`), options.map((one) => h("option", { value: one }, one)));
  const outcome = known("outcome", [...OUTCOMES, "failed (500 and above)"]);
  const search = h("input", { type: "search", placeholder: "Tenant, route, model, id, reason", "aria-label": "Filter the last requests", oninput: () => list.update(kept()) });
  const told = h("span", { class: "over grow" });
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    const held = hold.getAttribute("aria-pressed") === "true";
    hold.setAttribute("aria-pressed", String(!held));
    hold.textContent = held ? "Hold still" : "Follow again";
    if (held) look();
  } }, "Hold still");
  if (query.get("outcome") === "failed") outcome.selectedIndex = OUTCOMES.length + 1;
  const list = table({
    caption: "The last requests", rows: [], none: "No request of those that are kept fits.", onpick,
    columns: [
      { name: "Time", cell: (row) => moment(row.at).slice(11), kind: "nowrap" },
      { name: "Tenant", cell: (row) => row.tenant },
      { name: "Route", cell: (row) => row.route },
      { name: "Model", cell: (row) => row.model },
      { name: "Tier", cell: (row) => row.tier || "none" },
      { name: "Outcome", cell: (row) => row.outcome },
      { name: "Reason", cell: (row) => row.reason },
      { name: "Status", number: true, cell: (row) => h("span", { class: row.status >= 500 ? "bad-text" : "" }, row.status || "none") },
      { name: "Ours", number: true, cell: (row) => seconds(row.own_s) },
      { name: "Upstream's", number: true, cell: (row) => (row.upstream_s ? seconds(row.upstream_s) : "not asked") },
      { name: "Tokens", number: true, cell: (row) => (row.input_tokens === null ? "unknown" : `${count(row.input_tokens)} + ${count(row.output_tokens)}`) },
    ],
  });

  function kept() {
    const text = search.value.trim().toLowerCase();
    const which = outcome.value;
    return all.filter((row) => (!which || (which.startsWith("failed") ? row.status >= 500 : row.outcome === which))
      && (!text || [row.tenant, row.route, row.model, row.id, row.reason].some((one) => one.toLowerCase().includes(text))));
  }

  function update(value) {
    const { columns } = value;
    all = value.rows.map((row) => Object.fromEntries(columns.map((name, index) => [name, row[index]])));
    told.textContent = all.length
      ? `The last ${count(all.length)} requests, of ${duration(value.now - all.at(-1).at)}. Their texts are not kept.` : "";
    list.update(kept());
  }

  async function look() {
    if (hold.getAttribute("aria-pressed") === "true") return;
    try {
      update(await api.get("explain"));
    } catch { /* the bar at the top says that the proxy does not answer */ }
  }

  update(first);
  const body = first.rows.length ? [h("div", { class: "bar" }, search, outcome, told, hold), list]
    : [empty("No request yet", "Each request is listed here within 5 seconds.")];
  return { node: panel("The last requests", "pick one to see its way", body), look: first.rows.length ? look : () => {} };
}

function past(row) {
  const tiers = row.tiers ?? read(row.cache_status);
  return panel(`Request of ${row.tenant}`, `${moment(row.at)}, ${ago(row.at)}`,
    h("ol", { class: "way" },
      step("Asked", row.api, "", facts([["Id", row.id ? h("code", null, row.id) : null], ["Tenant", row.tenant], ["Route", row.route], ["Model", row.model], ["Delivery", row.stream ? "stream" : "JSON"]])),
      tiers.map((one) => step(`${one.tier[0].toUpperCase()}${one.tier.slice(1)}`, one.reason ? `${one.did}: ${one.reason}` : one.did, one.did === "hit" ? "good" : "",
        h("p", null, sentence(MEANING[one.did] ?? one.did)), facts(Object.entries(one.told).map(([name, value]) => [name, name === "ttl" ? `${duration(value)} left` : value === true ? "yes" : String(value)])))),
      step("Upstream", row.upstream_s ? `asked: ${seconds(row.upstream_s)}` : "not asked", "", facts([["Name", row.upstream]])),
      step("Answered", row.status, row.status >= 500 ? "bad" : "good", facts([
        ["Outcome", row.reason ? `${row.outcome}: ${row.reason}` : row.outcome], ["Our time", seconds(row.own_s)],
        ["Tokens", row.input_tokens === null ? "unknown" : `${count(row.input_tokens)} in, ${count(row.output_tokens)} out`],
        ["Stored", row.stored ? "yes" : "no"]]))));
}

// `Cache-Status` (RFC 9211), as the server reads it: names, and parameters that may be quoted.
function read(text) {
  const tiers = [];
  for (const member of text.match(/(?:[^,"]|"(?:[^"\\]|\\.)*")+/g) ?? []) {
    const [name, ...parameters] = member.match(/(?:[^;"]|"(?:[^"\\]|\\.)*")+/g).map((one) => one.trim());
    const told = Object.fromEntries(parameters.map((one) => {
      const at = one.indexOf("=");
      return at < 0 ? [one, true] : [one.slice(0, at), one.slice(at + 1).replace(/^"|"$/g, "").replace(/\\(.)/g, "$1")];
    }));
    const { hit, fwd, detail, ...rest } = told;
    tiers.push({ tier: name.replace("trivet-", ""), did: hit ? "hit" : fwd ?? "miss", reason: detail ?? "", told: rest });
  }
  return tiers;
}
