// Charts of the semantic and the prefix page. The words stand beside a drawing of 1000 by 100 that is
// stretched to its place, so that they keep their size.

import { h } from "./dom.js";
import { clock, count, share } from "./units.js";

// A drawing with the words of its axis at its left, from above to below.
function plot(words, height, label, ...content) {
  return [
    h("div", { class: "axis" }, words.map((word) => h("span", null, word))),
    h("svg", { class: "drawn", width: "100%", height, viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: label ? "img" : null,
      "aria-label": label, "aria-hidden": label ? null : "true" }, content),
  ];
}

// The words under it, evenly from left to right.
function below(words) {
  return [h("span"), h("div", { class: "axis-below" }, words.map((word) => h("span", null, word)))];
}

function upright(at, kind, from = 0) {
  return h("line", { x1: at, x2: at, y1: from, y2: 100, class: kind });
}

// The share of false hits among hits by threshold, and under it the pairs that hit.
export function calibrationChart(found) {
  const points = found.curve.filter(([, hits]) => hits > 0);
  if (points.length < 2) return h("p", { class: "note" }, "The calibration has no curve.");
  const low = points[0][0], high = points[points.length - 1][0];
  const x = (threshold) => 1000 * (threshold - low) / Math.max(1e-9, high - low);
  const most = Math.max(...points.map(([, hits]) => hits));
  const rates = points.map(([, hits, wrong]) => wrong / hits);
  const inside = found.threshold !== null && found.threshold >= low && found.threshold <= high;
  const top = Math.min(1, Math.max(2.5 * found.target, inside ? 1.4 * found.bound : 0, Math.min(0.5, Math.max(...rates))));
  const line = (values, height) => values.map((value, at) => `${x(points[at][0]).toFixed(2)},${(100 - 100 * value / height).toFixed(2)}`).join(" ");
  const y = 100 - 100 * found.target / top;
  const at = inside ? x(found.threshold) : 0;
  return h("div", null,
    h("p", { class: "note" }, "False hits among hits, by threshold"),
    h("div", { class: "plots" },
      plot([share(top), "0 %"], 150, `False hits among hits for thresholds from ${low} to ${high}. The target is ${share(found.target)}.`,
        h("line", { x1: 0, x2: 1000, y1: y, y2: y, class: "target" }), inside ? upright(at, "at") : null,
        inside ? upright(at, "bound", 100 - 100 * Math.min(found.bound, top) / top) : null,
        h("polyline", { points: line(rates, top), class: "line wrong" }))),
    h("p", { class: "note" }, "Pairs at or above the threshold"),
    h("div", { class: "plots" },
      plot([count(most), "0"], 64, `Pairs at or above the threshold, ${count(most)} at most.`, h("polyline", { points: line(points.map(([, hits]) => hits), most), class: "line" }),
        inside ? upright(at, "at") : null),
      below([low, low + (high - low) / 2, high].map((value) => value.toFixed(2)))),
    h("p", { class: "keys" }, h("span", { class: "key target" }, `target ${share(found.target)}`),
      inside ? h("span", { class: "key at" }, `threshold ${found.threshold.toFixed(4)}`) : h("span", null, "no threshold is certified"),
      inside ? h("span", { class: "key bound" }, `certified bound there ${share(found.bound, 2)}`) : null));
}

// A route's cached share, a bar for each bucket with traffic, with the moment it fell and the breaks.
export function shareChart(route) {
  const span = route.width * route.count;
  const x = (unix) => 1000 * (unix - route.first) / span;
  const wide = 1000 / route.count;
  const most = Math.max(1, ...route.buckets.map(([, , tokens]) => tokens));
  const bars = route.buckets.map(([start, calls, tokens, cached]) => {
    const part = tokens ? cached / tokens : 0;
    return h("g", null,
      h("rect", { x: x(start), y: 0, width: wide, height: 100, class: "track" }),
      h("rect", { x: x(start), y: 100 - 100 * part, width: wide, height: 100 * part, class: "read" }),
      h("title", null, `${clock(start, route.width < 60)}: ${share(part)} of ${count(tokens)} tokens in ${count(calls)} calls`));
  });
  const sizes = route.buckets.map(([start, , tokens]) => h("rect", { x: x(start), y: 100 - 100 * tokens / most, width: wide, height: 100 * tokens / most, class: "size" }));
  const breaks = route.breaks.flatMap((one) => one.times.map((at) => ({ at, cause: one.cause }))).filter((one) => one.at >= route.first)
    .map((one) => h("rect", { x: x(one.at) - 1.5, y: 0, width: 3, height: 100, class: "break-tick" }, h("title", null, `${clock(one.at, true)}: ${one.cause}`)));
  const fell = route.fell ? upright(x(route.fell.at), "fell") : null;
  const named = `Share of prompt tokens read from a cache. ${route.all.share === null ? "No traffic." : `${share(route.all.share)} in all.`}`;
  return h("div", null,
    h("div", { class: "plots" },
      plot(["100 %", "50 %", "0 %"], 128, named, h("line", { x1: 0, x2: 1000, y1: 50, y2: 50 }), bars, fell),
      plot(["breaks"], 14, null, breaks), plot([count(most), "tokens"], 38, null, sizes),
      below([0, 0.25, 0.5, 0.75, 1].map((part) => clock(route.first + part * span)))),
    h("p", { class: "keys" }, h("span", { class: "key read" }, "read from a cache"), h("span", { class: "key track" }, "not read"),
      breaks.length ? h("span", { class: "key break-tick" }, "a break that the doctor told") : null,
      h("span", { class: "key size" }, `prompt tokens, ${route.width === 30 ? "each half minute" : "each 10 minutes"}`),
      fell ? h("span", { class: "key fell" }, `fell at ${clock(route.fell.at)}`) : null));
}

// The same over a day in a few pixels.
export function spark(route, now = Date.now() / 1000) {
  const first = now - 86_400;
  const bars = route.spark.map(([start, tokens, cached]) => {
    const x = 1000 * (start - first) / 86_400, part = tokens ? cached / tokens : 0;
    return [h("rect", { x, y: 0, width: 20, height: 100, class: "track" }), h("rect", { x, y: 100 - 100 * part, width: 20, height: 100 * part, class: "read" })];
  });
  return h("svg", { class: "drawn spark", width: 96, height: 18, viewBox: "0 0 1000 100", preserveAspectRatio: "none", role: "img", "aria-label": "over the last 24 hours" }, bars);
}

// A bound beside its target: the rate that was seen, the bound over it, and the line it has to keep.
export function boundGauge(rate, bound, target) {
  const top = Math.min(1, Math.max(3 * target, bound === null ? 0 : 1.1 * bound));
  const place = (value) => `${(100 * Math.min(1, value / top)).toFixed(2)}%`;
  const over = bound !== null && bound > target;
  return h("svg", { class: "drawn gauge", width: "100%", height: 22, role: "img",
    "aria-label": bound === null ? "nothing was judged yet" : `bound ${share(bound, 2)}, target ${share(target)}` },
  h("rect", { x: 0, y: 6, width: "100%", height: 10, class: "track" }),
  bound === null ? null : h("rect", { x: 0, y: 6, width: place(bound), height: 10, class: over ? "over" : "under" }),
  bound === null ? null : h("rect", { x: 0, y: 6, width: place(rate ?? 0), height: 10, class: "seen" }),
  h("line", { x1: place(target), x2: place(target), y1: 1, y2: 21, class: "target" }));
}

// Bars to one scale: [name, value, class, text].
export function bars(rows) {
  const most = Math.max(1e-12, ...rows.map(([, value]) => value ?? 0));
  return h("div", { class: "bars" }, rows.map(([name, value, kind, text]) => [
    h("span", { class: "bar-name" }, name),
    h("svg", { class: "drawn", width: "100%", height: 16, "aria-hidden": "true" },
      h("rect", { x: 0, y: 2, width: "100%", height: 12, class: "track" }),
      h("rect", { x: 0, y: 2, width: `${(100 * (value ?? 0) / most).toFixed(2)}%`, height: 12, class: kind })),
    h("span", { class: "bar-value" }, text)]));
}
