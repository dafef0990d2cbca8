// Charts, drawn as SVG by h(). A series is { name, kind, values }; `kind` is one of the colours of
// style.css (exact, semantic, collapsed, stale, miss, bypass, error, own, upstream, spent, saved).

import { h, clear } from "./dom.js";
import { clock, moment } from "./units.js";

const LEFT = 56;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;

// A chart over time. `first` is Unix seconds, `width` the seconds of a bucket, `since` the moment
// from which anything is known, `format` writes a value with its unit, `label` says what is shown.
// Returns a node; `node.update(options)` draws it anew.
export function timeChart(options) {
  const plot = h("div", { class: "plot" });
  const legend = h("ul", { class: "legend" });
  const tip = h("div", { class: "tip", hidden: true, role: "status" });
  const node = h("figure", { class: "chart" }, plot, tip, legend);
  let shown = options;
  let cursor = null;
  let drawn = 0;

  function draw() {
    drawn = plot.clientWidth;
    if (!drawn) return;
    const svg = chart(shown, drawn, shown.height ?? 180);
    svg.addEventListener("pointermove", (event) => point(indexAt(event, svg)));
    svg.addEventListener("pointerleave", () => point(null));
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const count = length(shown);
      if (event.key === "Escape") point(null);
      if (!step || !count) return;
      event.preventDefault();
      point(Math.min(count - 1, Math.max(0, (cursor ?? count) + step)));
    });
    svg.addEventListener("blur", () => point(null));
    const held = plot.contains(document.activeElement);
    clear(plot, svg);
    if (held) svg.focus();
    const plain = shown.series.length === 1 && shown.series[0].total === undefined;
    clear(legend, plain ? null : shown.series.map((one) => h("li", null, h("span", { class: `swatch ${one.kind}` }), one.name,
      one.total === undefined ? null : h("b", null, one.total))));
    if (cursor !== null) point(cursor);
  }

  function indexAt(event, svg) {
    const box = svg.getBoundingClientRect();
    const x = event.clientX - box.left - LEFT;
    const across = box.width - LEFT - RIGHT;
    return Math.min(length(shown) - 1, Math.max(0, Math.floor((x / across) * length(shown))));
  }

  function point(index) {
    const svg = plot.firstChild;
    cursor = index !== null && index < length(shown) ? index : null;
    tip.hidden = cursor === null || !svg;
    svg?.querySelector(".cursor")?.remove();
    if (tip.hidden) return;
    const height = (shown.height ?? 180) - BOTTOM;
    const x = LEFT + ((cursor + 0.5) / length(shown)) * (drawn - LEFT - RIGHT);
    svg.append(h("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: height }));
    const at = shown.first + cursor * shown.width;
    const rows = shown.series.filter((one) => one.values[cursor] !== null && (!shown.stacked || one.values[cursor]))
      .map((one) => h("li", null, h("span", { class: `swatch ${one.kind}` }), one.name, h("b", null, shown.format(one.values[cursor]))));
    clear(tip, h("p", null, `${clock(at, shown.width < 60)} to ${clock(at + shown.width, shown.width < 60)}`),
      rows.length ? h("ul", null, rows) : h("p", null, at + shown.width < (shown.since ?? 0) ? "not known" : "nothing"));
    tip.classList.toggle("left", x > drawn / 2);
    tip.style.left = x > drawn / 2 ? "auto" : `${x + 10}px`;
    tip.style.right = x > drawn / 2 ? `${drawn - x + 10}px` : "auto";
  }

  node.update = (next) => {
    shown = next;
    draw();
  };
  new ResizeObserver(() => {
    if (plot.clientWidth !== drawn) draw();
  }).observe(plot);
  return node;
}

function length(options) {
  return options.series[0]?.values.length ?? 0;
}

function chart(options, width, height) {
  const across = width - LEFT - RIGHT;
  const down = height - TOP - BOTTOM;
  const count = length(options);
  const highest = Math.max(0, ...tops(options));
  const [most, ticks] = scale(options.most ?? highest);
  const x = (index) => LEFT + (index / count) * across;
  const y = (value) => TOP + down - (value / most) * down;
  const parts = [];
  for (const tick of ticks) {
    parts.push(h("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      h("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, options.format(tick)));
  }
  parts.push(...moments(options, x, height, across), unknown(options, x, y, most));
  parts.push(...(options.stacked ? stacks(options, x, y) : lines(options, x, y)));
  for (const mark of options.marks ?? []) {
    const at = x((mark.at - options.first) / options.width);
    if (at >= LEFT && at <= width - RIGHT) parts.push(h("line", { class: "mark", x1: at, x2: at, y1: TOP, y2: TOP + down }, h("title", null, mark.name)));
  }
  return h("svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: 0,
    "aria-label": `${options.label}. Arrow keys move through time.`,
  }, parts);
}

function tops(options) {
  if (!options.stacked) return options.series.flatMap((one) => one.values.filter((value) => value !== null));
  return Array.from({ length: length(options) }, (_, index) => options.series.reduce((sum, one) => sum + (one.values[index] ?? 0), 0));
}

// Round steps: at most four lines above zero.
function scale(highest) {
  if (!(highest > 0)) return [1, [0]];
  const rough = highest / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
  const most = Math.ceil((highest / step) * 0.999) * step;
  const ticks = [];
  for (let at = 0; at <= most * 1.001; at += step) ticks.push(Number(at.toPrecision(6)));
  return [most, ticks];
}

function moments(options, x, height, across) {
  const spans = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600];
  const total = length(options) * options.width;
  const room = Math.max(2, Math.floor(across / 70));
  const step = spans.find((one) => total / one <= room) ?? 43200;
  const offset = new Date(options.first * 1000).getTimezoneOffset() * 60;
  const parts = [];
  for (let at = Math.ceil((options.first - offset) / step) * step + offset; at < options.first + total; at += step) {
    parts.push(h("text", { class: "tick", x: x((at - options.first) / options.width), y: height - 6, "text-anchor": "middle" }, clock(at)));
  }
  return parts;
}

function unknown(options, x, y, most) {
  const buckets = ((options.since ?? 0) - options.first) / options.width;
  const until = Math.min(length(options), buckets);
  if (until <= 0) return null;
  const [from, to] = [x(0), x(until)];
  return h("g", null, h("rect", { class: "unknown", x: from, y: y(most), width: to - from, height: y(0) - y(most) },
    h("title", null, `Nothing is known from before ${moment(options.since)}`)),
    to - from > 130 ? h("text", { class: "tick", x: (from + to) / 2, y: y(most / 2) + 4, "text-anchor": "middle" }, "before the proxy started") : null);
}

function stacks(options, x, y) {
  const base = new Array(length(options)).fill(0);
  return options.series.map((one) => {
    let path = "";
    one.values.forEach((value, index) => {
      if (!value) return;
      const [from, to] = [base[index], base[index] + value];
      base[index] = to;
      const gap = x(1) - x(0) > 4 ? 1 : 0;
      path += `M${x(index).toFixed(1)} ${y(from).toFixed(1)}V${y(to).toFixed(1)}H${(x(index + 1) - gap).toFixed(1)}V${y(from).toFixed(1)}Z`;
    });
    return path ? h("path", { class: `area ${one.kind}`, d: path }) : null;
  });
}

function lines(options, x, y) {
  const from = ((options.since ?? 0) - options.first) / options.width - 1;
  const known = (value, index) => value !== null && value !== undefined && index >= from;
  return options.series.map((one) => {
    const dots = [];
    let path = "";
    let open = false;
    one.values.forEach((value, index) => {
      if (!known(value, index)) {
        open = false;
        return;
      }
      const alone = !open && !known(one.values[index + 1], index + 1);
      if (alone) dots.push(h("circle", { class: `dot ${one.kind}`, cx: x(index + 0.5), cy: y(value), r: 2.5 }));
      else path += `${open ? "L" : "M"}${x(index + 0.5).toFixed(1)} ${y(value).toFixed(1)}`;
      open = !alone;
    });
    return [path ? h("path", { class: `line ${one.kind}`, d: path }) : null, dots];
  });
}

// One bar cut into parts by their share. A part is { name, value, kind, title }. `marks` are
// { at, name }: lines at a share of the whole (0 to 1), such as breakpoints.
export function shareBar(parts, { label, marks = [], height = 18 } = {}) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  const width = 1000;
  let from = 0;
  const drawn = parts.filter((part) => part.value > 0).map((part) => {
    const across = total ? (part.value / total) * width : 0;
    const made = h("rect", { class: `area ${part.kind}`, x: from, y: 0, width: Math.max(0, across - (across > 4 ? 1 : 0)), height },
      h("title", null, part.title ?? part.name));
    from += across;
    return made;
  });
  const lines = marks.map((mark) => h("line", { class: "mark", x1: mark.at * width, x2: mark.at * width, y1: 0, y2: height },
    h("title", null, mark.name)));
  return h("svg", { class: "share", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label ?? "", height },
    h("rect", { class: "ground", x: 0, y: 0, width, height }), drawn, lines);
}

// A line without axes, for a table's cell.
export function sparkline(values, kind = "own", label = "") {
  const most = Math.max(...values, 0) || 1;
  const points = values.map((value, index) => `${((index / Math.max(1, values.length - 1)) * 100).toFixed(1)},${(20 - (value / most) * 18).toFixed(1)}`);
  return h("svg", { class: "spark", viewBox: "0 0 100 22", preserveAspectRatio: "none", role: "img", "aria-label": label },
    h("polyline", { class: `line ${kind}`, points: points.join(" ") }));
}

// A curve over numbers: { x, y } points, with lines at values that matter. For calibrations.
export function curve({ points, xLabel, yLabel, formatX, formatY, marks = [], levels = [], label, height = 200, width = 480 }) {
  const xs = points.map((point) => point.x);
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const [most, ticks] = scale(Math.max(...points.map((point) => point.y), ...levels.map((level) => level.at)));
  const across = width - LEFT - RIGHT;
  const down = height - TOP - BOTTOM - 14;
  const x = (value) => LEFT + ((value - low) / (high - low || 1)) * across;
  const y = (value) => TOP + down - (value / most) * down;
  const parts = ticks.flatMap((tick) => [
    h("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
    h("text", { class: "tick", x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, formatY(tick)),
  ]);
  for (let step = 0; step <= 4; step += 1) {
    const at = low + ((high - low) * step) / 4;
    parts.push(h("text", { class: "tick", x: x(at), y: height - 20, "text-anchor": "middle" }, formatX(at)));
  }
  parts.push(h("text", { class: "tick", x: LEFT + across / 2, y: height - 4, "text-anchor": "middle" }, xLabel));
  for (const level of levels) parts.push(h("line", { class: `level ${level.kind ?? ""}`, x1: LEFT, x2: width - RIGHT, y1: y(level.at), y2: y(level.at) }, h("title", null, level.name)));
  for (const mark of marks) parts.push(h("line", { class: "mark", x1: x(mark.at), x2: x(mark.at), y1: TOP, y2: TOP + down }, h("title", null, mark.name)));
  const path = points.map((point, index) => `${index ? "L" : "M"}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join("");
  return h("svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${label}. ${yLabel} over ${xLabel}.` },
    parts, h("path", { class: "line exact", d: path }));
}
