// Similar answers: how each tenant's calibration and running measurement stand, what was served,
// what the gate refused, and a person's verdicts.

import { bars, boundGauge, calibrationChart } from "../curves.js";
import { sides } from "../diff.js";
import { clear, empty, figure, figures, h, panel, say } from "../dom.js";
import { facts, table } from "../table.js";
import { ago, count, dollars, moment, share } from "../units.js";

export const title = "Semantic";

const LIST_TICKS = 6; // of five seconds each
const SINCE = "since the calibration came into use";

export async function render(main, api) {
  const wanted = new URLSearchParams(location.search).get("tenant");
  const list = h("div"), detail = h("div", { class: "page" });
  let told = await api.get("semantic");
  let stopped = false;
  const one = wanted ?? told.tenants.reduce((best, each) => (!best || each.lookups > best.lookups ? each : best), null)?.tenant;
  if (!told.tenants.length && !wanted) {
    main.append(empty("No tenant looks for similar answers", "The semantic tier is off in every policy.",
      "semantic: { mode: shadow } in a policy file measures it and serves nothing; trivet eval calibrate says from which score on it may serve."));
    return undefined;
  }
  const tenants = tenantTable(told.tenants, one);
  list.append(panel("Tenants", `counts ${SINCE}; ${processes(told.workers)}`, tenants,
    told.off ? h("p", { class: "note" }, `${count(told.off)} with the tier off are not listed.`) : null));
  main.append(list, detail);
  const view = await tenantView(one, api);
  detail.append(view.node);

  let ticks = 0;
  const refresh = async () => {
    ticks += 1;
    try {
      if (ticks % LIST_TICKS === 0) {
        told = await api.get("semantic");
        if (stopped) return;
        tenants.update(told.tenants);
      }
      await view.refresh();
    } catch { /* the bar at the top says that the connection is lost */ }
  };
  const leave = api.live(refresh);
  return () => {
    stopped = true;
    leave();
  };
}

function processes(workers) {
  return workers === 1 ? "1 process" : `${workers} processes`;
}

function tenantTable(rows, current) {
  return table({
    caption: "Tenants with the semantic tier on",
    rows,
    size: 10,
    columns: [
      { name: "Tenant", by: (row) => row.tenant, cell: (row) => h("a", { href: `/trivet/ui/semantic?tenant=${encodeURIComponent(row.tenant)}`, "aria-current": row.tenant === current ? "true" : null }, row.tenant) },
      { name: "Mode", by: (row) => row.mode, cell: (row) => modeOf(row) },
      { name: "Lookups", number: true, by: (row) => row.lookups, cell: (row) => count(row.lookups) },
      { name: "Hits", number: true, by: (row) => row.hits, cell: (row) => (row.lookups ? `${count(row.hits)} (${share(row.hits / row.lookups)})` : "0") },
      { name: "False of judged", number: true, by: (row) => row.false_hits, cell: (row) => `${count(row.false_hits)} of ${count(row.audits)}` },
      { name: "Bound", number: true, by: (row) => row.bound, cell: (row) => (row.bound === null ? "none yet" : share(row.bound, 2)) },
      { name: "Target", number: true, by: (row) => row.target, cell: (row) => share(row.target) },
      { name: "Embedder", by: (row) => row.embedder, cell: (row) => row.embedder },
    ],
  });
}

function modeOf(row) {
  const closed = Object.keys(row.closed);
  if (row.acts_as !== row.mode) return h("span", { class: "tag warn", title: row.detail }, `${row.mode}, acts as ${row.acts_as}`);
  if (closed.length) return h("span", { class: "tag warn" }, `${row.mode}, closed: ${closed.join(", ")}`);
  return h("span", { class: "tag good" }, row.mode);
}

async function tenantView(name, api) {
  const places = { standing: h("div"), measures: h("div", { class: "grid2" }), lookups: h("div") };
  const hits = rowsPanel(name, api, "hits"), refused = rowsPanel(name, api, "refused");
  let drawn = "";
  const node = h("div", { class: "page" }, places.standing, places.measures, places.lookups, hits.node, refused.node);
  const refresh = async () => {
    const told = await api.get(`semantic/tenant?tenant=${encodeURIComponent(name)}`);
    const text = JSON.stringify(told);
    if (text !== drawn) {
      drawn = text;
      clear(places.standing, standing(told));
      clear(places.measures, calibrationPanel(told), h("div", { class: "page" }, boundPanel(told), economicsPanel(told)));
      clear(places.lookups, lookupsPanel(told));
      hits.allowed(told.store_text, told.rows.hits);
      refused.allowed(told.store_text, told.rows.refused);
    }
  };
  await refresh();
  await Promise.all([hits.load(), refused.load()]);
  return { node, refresh };
}

function standing(told) {
  const shadow = told.acts_as === "shadow" || told.mode === "shadow";
  return panel(told.tenant, SINCE,
    h("p", { class: "lead" }, modeOf(told), told.detail ? h("span", null, ` ${told.detail}.`) : null),
    figures(
      figure("Lookups", count(told.lookups), "of open intents"),
      figure(shadow ? "Would have hit" : "Hits", count(told.hits), told.lookups ? `${share(told.hits / told.lookups)} of lookups` : "no lookup yet"),
      figure("Judged at random", count(told.audits), told.audits < told.enough ? `${count(told.enough)} without a false one show the target` : `share drawn: ${share(told.audit.share)}`),
      figure("False among them", count(told.false_hits), told.audits ? share(told.false_hits / told.audits, 2) : "none judged yet"),
      figure("Bound", told.bound === null ? "none yet" : share(told.bound, 2), `target ${share(told.target)}, confidence ${share(told.confidence, 0)}`, told.bound !== null && told.bound > told.target && told.audits >= told.enough ? "bad" : ""),
      figure("Called wrong", count(told.reported), "by callers and operators")));
}

function calibrationPanel(told) {
  const found = told.calibration;
  if (!found) {
    return panel("Calibration", told.embedder, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "Nothing is calibrated for this tenant"),
      h("p", null, "Without a calibration the tier only watches. Label pairs, run trivet eval calibrate, and name its file in the policy.")));
  }
  const age = (Date.now() - Date.parse(`${found.made}T00:00:00`)) / 86_400_000;
  return panel("Calibration", `${found.embedder}, chain ${found.chain}`,
    calibrationChart(found),
    facts([
      ["Threshold", found.threshold === null ? `none certified${found.needed ? `; ${count(found.needed)} more hits without a false one would do` : ""}` : found.threshold.toFixed(4)],
      ...Object.entries(found.thresholds).map(([intent, one]) => [`Threshold, ${intent}`, one.toFixed(4)]),
      ["Hits at it", `n = ${count(found.hits)} of ${count(found.pairs)} pairs, ${count(found.false_hits)} false`],
      ["Bound", `${share(found.bound, 2)} at confidence ${share(found.confidence, 0)}, for a target of ${share(found.target)}`],
      ["Made", `${found.made}, ${age < 1 ? "today" : `${count(Math.floor(age))} d ago`}`],
      ["Writing, language", [found.scripts.join(", "), found.languages.join(", ") || "any"].join("; ")],
      ["Embedder's fingerprint", h("code", null, found.fingerprint)],
      ["Pairs' digest", h("code", null, found.dataset)],
    ]));
}

function boundPanel(told) {
  const scale = (one) => boundGauge(one.audits ? one.false_hits / one.audits : null, one.bound, told.target);
  return panel("False hits while it runs", SINCE,
    h("div", { class: "scroll" }, h("table", null,
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "Intent"), h("th", { scope: "col" }, "State"),
        h("th", { scope: "col", class: "wide" }, "Seen, bound, target"), h("th", { scope: "col", class: "number" }, "Bound"), h("th", { scope: "col", class: "number" }, "False"))),
      h("tbody", null, told.by_intent.map((one) => h("tr", null, h("th", { scope: "row" }, one.intent),
        h("td", null, intentState(one, told)), h("td", { class: "wide" }, scale(one)),
        h("td", { class: "number" }, one.bound === null ? "none yet" : share(one.bound, 2)),
        h("td", { class: "number" }, `${count(one.false_hits)} of ${count(one.audits)}`)))))),
    h("p", { class: "keys" }, h("span", { class: "key seen" }, "seen"), h("span", { class: "key under" }, "upper bound"), h("span", { class: "key target" }, "target"),
      h("span", null, `The bound holds at any time with confidence ${share(told.confidence, 0)}.`)));
}

function intentState(one, told) {
  if (one.closed) return h("span", { class: "tag bad" }, `closed: ${one.closed}`);
  if (!one.open) return h("span", { class: "tag" }, "not in the policy");
  return told.acts_as === told.mode ? h("span", { class: "tag good" }, "open") : h("span", { class: "tag warn" }, `watched: ${told.reason}`);
}

function economicsPanel(told) {
  const found = told.economics;
  if (!found) {
    return panel("Economics", null, h("p", { class: "note" },
      "The policy does not say what a call, a lookup and a wrong answer cost (semantic.economics), so it cannot be said whether the hits pay."));
  }
  const pays = found.risked === null ? null : found.saved > found.risked;
  const shadow = told.acts_as === "shadow";
  const verdict = pays === null ? "Nothing was looked up yet, or no bound on false hits is known."
    : `${shadow ? "It would pay" : "It pays"}: ${dollars(found.saved - found.risked)} more saved than risked.`;
  return panel("Economics", SINCE,
    bars([[shadow ? "Would have saved" : "Saved", found.saved, "saved", dollars(found.saved)],
      ["Risked, at most", found.risked, pays === false ? "risked over" : "risked", found.risked === null ? "unknown" : dollars(found.risked)]]),
    h("p", { class: pays === false ? "problem" : "lead" }, pays === false ? `It does not pay: ${dollars(found.risked - found.saved)} more is risked than saved.` : verdict),
    h("p", { class: "note" }, `${dollars(found.call_cost)} a call, ${dollars(found.lookup_cost)} a lookup, ${dollars(found.false_hit_cost)} a wrong answer. `,
      found.rate === null ? "No bound on false hits is known." : `False hits: ${share(found.rate, 2)}, the ${found.source === "running" ? "running bound" : "calibration's bound until enough hits are judged"}.`));
}

function lookupsPanel(told) {
  const groups = told.lookups_by_reason;
  const sum = (rows) => rows.reduce((all, row) => all + row.count, 0);
  const sums = { served: sum(groups.served), refused: sum(groups.refused), missed: sum(groups.missed) };
  const all = sums.served + sums.refused + sums.missed;
  if (!all) return panel("Lookups", "since the start", empty("No request of this tenant was looked up yet"));
  const line = (name, key, kind) => [name, sums[key], kind, `${count(sums[key])} (${share(sums[key] / all)})`];
  return panel("Lookups", `since the start, ${processes(told.workers)}`,
    bars([line("Near enough", "served", "saved"), line("Refused by the gate", "refused", "refused"), line("Nothing near enough", "missed", "missed")]),
    h("div", { class: "grid2" },
      reasons("What the gate refused, and why", groups.refused, all),
      h("div", null, reasons("Near enough", groups.served, all), reasons("Nothing near enough, and why", groups.missed, all))));
}

function reasons(name, rows, all) {
  if (!rows.length) return null;
  return h("div", { class: "scroll" }, h("table", null, h("caption", null, name),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "Reason"), h("th", { scope: "col" }, "Intent"),
      h("th", { scope: "col" }, "Meaning"), h("th", { scope: "col", class: "number" }, "Count"), h("th", { scope: "col", class: "number" }, "Share"))),
    h("tbody", null, rows.slice(0, 12).map((row) => h("tr", null, h("th", { scope: "row" }, h("code", null, row.reason || row.kind)), h("td", null, row.intent),
      h("td", null, row.meaning || (row.reason ? "" : "served")), h("td", { class: "number" }, count(row.count)), h("td", { class: "number" }, share(row.count / all)))),
    rows.length > 12 ? h("tr", null, h("td", { colspan: 5, class: "note" }, `${count(rows.length - 12)} more reasons are in trivet_semantic_lookups_total.`)) : null)));
}

// ---- the last hits and refusals

function rowsPanel(name, api, kind) {
  const body = h("div", { class: "page" }), hint = h("p", { class: "note" });
  const older = h("button", { type: "button", class: "plain", onclick: () => load(behind) }, "Older");
  const newest = h("button", { type: "button", class: "plain", onclick: () => load(null) }, "Show the newest");
  const place = h("span", { class: "note" });
  const pager = h("div", { class: "pager" }, newest, place, older);
  const node = panel(kind === "hits" ? "Recent hits" : "Recently refused by the gate", null, hint, body, pager);
  let behind = null, shown = 0, texts = null;

  async function load(before) {
    older.disabled = newest.disabled = true;
    try {
      const asked = `semantic/rows?tenant=${encodeURIComponent(name)}&kind=${kind}${before === null ? "" : `&before=${before}`}`;
      const told = await api.get(asked);
      behind = told.before;
      shown = told.rows.length;
      clear(body, told.rows.length ? (kind === "hits" ? told.rows.map((row) => hitCard(name, api, row)) : refusedTable(told.rows))
        : empty(kind === "hits" ? "No hit is kept yet" : "Nothing was refused yet", before === null ? "The last 200 of each process are kept while it runs." : "There are no older ones."));
      tellHint();
      place.textContent = told.rows.length ? `${moment(told.rows[told.rows.length - 1].at)} to ${moment(told.rows[0].at)}` : "";
      if (before !== null) node.scrollIntoView({ block: "start" });
    } catch (error) {
      clear(body, h("p", { class: "problem", role: "alert" }, error.message));
    } finally {
      newest.disabled = false;
      older.disabled = behind === null;
      pager.hidden = !shown && behind === null;
    }
  }

  function allowed(stored, kept) {
    if (!shown && kept) load(null);
    if (texts === stored) return;
    texts = stored;
    hint.textContent = stored ? "" : "The policy does not let texts be kept (semantic.store_text), so they are not shown.";
    tellHint();
  }

  function tellHint() {
    hint.hidden = texts !== false || !shown;
  }

  return { node, load: () => load(null), allowed };
}

function hitCard(tenant, api, row) {
  const verdict = h("p", { class: "verdict", role: "status" });
  const right = h("button", { type: "button", onclick: () => give("right") }, "Right");
  const wrong = h("button", { type: "button", class: "danger", onclick: () => give("wrong") }, "Wrong");
  const buttons = h("div", { class: "buttons" }, right, wrong);
  const node = h("article", { class: "hit" }, h("div", { class: "hit-top" }, hitHead(row), buttons), hitTexts(row), verdict);
  if (row.verdict) settle(`Called ${row.verdict}.`);
  else if (!row.there) settle("The stored question is gone: expired, purged, or taken out.");

  function settle(text) {
    verdict.textContent = text;
    buttons.remove();
  }

  async function give(said) {
    right.disabled = wrong.disabled = true;
    verdict.textContent = "";
    try {
      const done = await api.post("semantic/verdict", { tenant, row: row.id, verdict: said });
      const counted = done.counted === "audit" ? "It counts in the bound" : "It counts as a report";
      settle(`Called ${said}. ${said === "wrong" ? `${counted}${done.removed ? ", and the answer is served for no similar question any more" : ""}.` : `${done.counted === "audit" ? "It counts in the bound." : "Noted."}`}`
        + (done.labelled ? " Kept as a label for trivet eval." : ""));
      say(`Called ${said}`);
    } catch (error) {
      verdict.textContent = error.message;
      right.disabled = wrong.disabled = false;
    }
  }

  return node;
}

function hitHead(row) {
  const kinds = { hit: "served", assist: "suggested", shadow: "would have been served" };
  const numbers = [row.score === null ? null : `score ${row.score.toFixed(3)}`, row.threshold === null ? null : `threshold ${row.threshold.toFixed(3)}`, row.cosine === null ? null : `cosine ${row.cosine.toFixed(3)}`];
  return h("header", null, h("time", { datetime: new Date(row.at * 1000).toISOString(), title: moment(row.at) }, ago(row.at)),
    h("span", { class: `tag ${row.told === "hit" ? "good" : ""}` }, kinds[row.told] ?? row.told),
    h("span", null, row.intent), h("span", null, row.route), h("span", null, row.model),
    h("span", { class: "numbers" }, numbers.filter(Boolean).join(", ")),
    row.drawn ? h("span", { class: "tag warn" }, "drawn for a person") : null);
}

function hitTexts(row) {
  const there = row.stored !== undefined && row.asked !== null;
  if (!there) return row.asked === null ? null : h("div", { class: "texts" }, h("div", null, h("h3", null, "Asked"), h("p", { class: "text" }, row.asked)));
  const [stored, asked] = sides(row.stored, row.asked);
  return h("div", { class: "texts" },
    h("div", null, h("h3", null, "Stored question"), h("p", { class: "text" }, stored)),
    h("div", null, h("h3", null, "Asked"), h("p", { class: "text" }, asked)),
    row.answer ? h("details", { class: "answer" }, h("summary", null, "The answer that both got"), h("p", { class: "text" }, row.answer)) : null);
}

function refusedTable(rows) {
  return h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, ["When", "Reason", "Intent", "Route", "Model", "Asked"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, rows.map((row) => h("tr", null, h("td", null, h("time", { datetime: new Date(row.at * 1000).toISOString(), title: moment(row.at) }, ago(row.at))),
      h("th", { scope: "row" }, h("code", null, row.reason)), h("td", null, row.intent), h("td", null, row.route), h("td", null, row.model),
      h("td", { class: "text" }, row.asked ?? h("span", { class: "note" }, "not kept")))))));
}
