// Nodes are made here and nowhere else. Text becomes text nodes: nothing that comes from a prompt,
// a policy or a caller is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set([
  "svg", "g", "path", "rect", "line", "circle", "text", "title", "polyline", "polygon",
]);
const SAFE_LINK = /^(?:[/#?]|https?:)/i;

// h("button", { class: "plain", onclick: act }, "Save", [more, nodes])
// `title` is an HTML attribute everywhere; the element of that name is SVG's.
export function h(tag, attributes, ...children) {
  const node = DRAWN.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    set(node, name, value);
  }
  return add(node, children);
}

export function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

export function clear(node, ...children) {
  node.replaceChildren();
  return add(node, children);
}

function set(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) {
    if (typeof value !== "function") throw new TypeError(`${name} has to be a function`);
    node.addEventListener(name.slice(2), value);
  } else if (name === "style" || name === "srcdoc" || name === "src") {
    throw new TypeError(`${name} is not set here: use a class`);
  } else if (name === "href" && !SAFE_LINK.test(value)) {
    throw new TypeError("a link has to be a path or http(s)");
  } else if (name === "value" || name === "checked" || name === "disabled") {
    node[name] = value;
  } else if (name === "dataset") {
    Object.assign(node.dataset, value);
  } else {
    node.setAttribute(name, value === true ? "" : String(value));
  }
}

// A region that says what goes on, for those who cannot see it.
export function say(text) {
  const region = document.getElementById("said");
  if (region) region.textContent = text;
}

export function empty(title, ...hints) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title),
    hints.map((hint) => h("p", null, hint)));
}

export function panel(title, over, ...content) {
  return h("section", { class: "panel" },
    h("header", { class: "panel-head" }, h("h2", null, title), over ? h("span", { class: "over" }, over) : null),
    content);
}

// One figure: what it is, its value, and what it rests on or the time that it is about.
export function figure(name, value, note, kind) {
  return h("div", { class: `figure ${kind ?? ""}` },
    h("dt", null, name), h("dd", null, value), note ? h("dd", { class: "note" }, note) : null);
}

export function figures(...items) {
  return h("dl", { class: "figures" }, items);
}
