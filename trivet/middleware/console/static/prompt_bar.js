// A prompt drawn in proportion: its parts, the breakpoints, where it parts from an earlier one, and
// what of it was read from the cache, written to it, and computed anew.

import { h } from "./dom.js";
import { count } from "./units.js";

const LEVELS = { tools: "Tools", system: "System", messages: "Messages" };
const HEIGHT = 74;

export function promptBar(shape) {
  const stretches = shape.stretches.map(([level, kind, role, tokens, parts, mark]) => ({ level, kind, role, tokens, parts, mark }));
  const total = stretches.reduce((sum, one) => sum + one.tokens, 0);
  if (!total) return h("p", { class: "note" }, "The prompt has no parts that could be read.");
  const share = (tokens) => `${(100 * tokens / total).toFixed(3)}%`;
  const bars = [], marks = [], labels = [];
  let at = 0, level = "";
  stretches.forEach((one, index) => {
    if (one.level !== level) {
      level = one.level;
      const sum = stretches.filter((other) => other.level === level).reduce((all, other) => all + other.tokens, 0);
      if (sum / total > 0.08) labels.push(h("text", { x: share(at), y: 11, class: "tick" }, LEVELS[level] ?? level));
    }
    bars.push(h("rect", { x: share(at), y: 18, width: share(one.tokens), height: 26, class: `part ${level} ${index % 2 ? "odd" : ""}` },
      h("title", null, named(one))));
    if (index === shape.broken) marks.push(broken(share(at)));
    at += one.tokens;
    if (one.mark !== null) marks.push(breakpoint(share(at), one.mark));
  });
  return h("figure", { class: "prompt-bar" },
    h("svg", { class: "drawn", width: "100%", height: HEIGHT, role: "img", "aria-label": spoken(shape, stretches, total) },
      labels, bars, cacheBars(shape), marks),
    h("figcaption", { class: "keys" }, legend(shape, stretches, total)),
    h("details", null, h("summary", null, `The ${count(stretches.length)} stretches as a table`), partsTable(stretches, shape.broken)));
}

function named(one) {
  const who = [one.role, one.kind].filter(Boolean).join(" ");
  return `${one.level}: ${one.parts === 1 ? who : `${one.parts} parts from ${who} on`}, about ${count(one.tokens)} tokens`;
}

function breakpoint(x, ttl) {
  return h("g", { class: "breakpoint" }, h("line", { x1: x, x2: x, y1: 14, y2: 48 }), h("circle", { cx: x, cy: 14, r: 3.5 }),
    h("title", null, ttl ? `breakpoint, ${ttl}` : "breakpoint, the provider's own lifetime"));
}

function broken(x) {
  return h("g", { class: "broken" }, h("line", { x1: x, x2: x, y1: 16, y2: 50 }), h("title", null, "Here it parts from an earlier prompt"));
}

function cacheBars(shape) {
  if (!shape.input_tokens) return null;
  const share = (tokens) => `${Math.min(100, 100 * tokens / shape.input_tokens).toFixed(3)}%`;
  const read = shape.read_tokens, written = shape.write_tokens;
  return h("g", null,
    h("rect", { x: 0, y: 54, width: "100%", height: 12, class: "anew" }, h("title", null, "computed anew")),
    h("rect", { x: 0, y: 54, width: share(read), height: 12, class: "read" }, h("title", null, `read from the cache: ${count(read)} tokens`)),
    h("rect", { x: share(read), y: 54, width: share(written), height: 12, class: "written" }, h("title", null, `written to the cache: ${count(written)} tokens`)));
}

function legend(shape, stretches, total) {
  const marks = stretches.filter((one) => one.mark !== null);
  const parts = stretches.reduce((sum, one) => sum + one.parts, 0);
  const told = [
    h("span", null, `about ${count(total)} tokens in ${count(parts)} ${parts === 1 ? "part" : "parts"}`),
    marks.length ? h("span", { class: "key mark" }, `${marks.length === 1 ? "breakpoint" : `${marks.length} breakpoints`} (${[...new Set(marks.map((one) => one.mark || "the default lifetime"))].join(", ")})`)
      : h("span", null, "no breakpoints"),
  ];
  if (shape.broken >= 0) told.push(h("span", { class: "key broken" }, "here it parts from an earlier prompt"));
  if (shape.input_tokens) {
    const anew = Math.max(0, shape.input_tokens - shape.read_tokens - shape.write_tokens);
    told.push(h("span", { class: "key read" }, `${count(shape.read_tokens)} read`), h("span", { class: "key written" }, `${count(shape.write_tokens)} written`),
      h("span", { class: "key anew" }, `${count(anew)} computed anew, as the upstream counted`));
  } else {
    told.push(h("span", null, "the upstream did not say what was read"));
  }
  return told;
}

function spoken(shape, stretches, total) {
  const by = Object.keys(LEVELS).map((level) => [level, stretches.filter((one) => one.level === level).reduce((sum, one) => sum + one.tokens, 0)]);
  const levels = by.filter(([, tokens]) => tokens).map(([level, tokens]) => `${level} ${count(tokens)}`).join(", ");
  return `A prompt of about ${count(total)} tokens: ${levels}. ${count(shape.read_tokens)} were read from the cache, ${count(shape.write_tokens)} written to it.`;
}

function partsTable(stretches, at) {
  return h("div", { class: "scroll" }, h("table", null,
    h("thead", null, h("tr", null, ["Level", "Role", "Kind", "Breakpoint"].map((name) => h("th", { scope: "col" }, name)),
      ["Parts", "Tokens, about"].map((name) => h("th", { scope: "col", class: "number" }, name)))),
    h("tbody", null, stretches.map((one, index) => h("tr", { class: index === at ? "marked" : null },
      h("td", null, one.level), h("td", null, one.role), h("td", null, one.kind),
      h("td", null, one.mark === null ? "" : one.mark || "default"),
      h("td", { class: "number" }, count(one.parts)), h("td", { class: "number" }, count(one.tokens)))))));
}
