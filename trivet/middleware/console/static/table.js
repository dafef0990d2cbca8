// Tables, paged so that ten thousand rows cost what fifty do.

import { add, clear, h, say } from "./dom.js";

const SIZE = 50;

// A column is { name, cell: row => node or text, number: bool, by: row => what to sort by, kind }.
// `rowOf` may give a row's attributes, `onpick` is called with a row that was chosen.
// Returns a node; `node.update(rows)` shows others and keeps page and order.
export function table({ columns, rows, caption, none, onpick, size = SIZE, sorted = null }) {
  let all = rows;
  let page = 0;
  let order = sorted;
  const head = h("thead");
  const body = h("tbody");
  const pager = h("div", { class: "pager" });
  const scroll = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", null, h("caption", { class: "unseen" }, caption), head, body));
  const node = h("div", { class: "table" }, scroll, pager);

  function inOrder() {
    if (!order) return all;
    const { by } = columns[order.column];
    const sign = order.down ? -1 : 1;
    return [...all].sort((left, right) => {
      const [a, b] = [by(left), by(right)];
      if (a === b) return 0;
      if (a === null || a === undefined) return 1;
      if (b === null || b === undefined) return -1;
      return a < b ? -sign : sign;
    });
  }

  function draw() {
    const shown = inOrder();
    const pages = Math.max(1, Math.ceil(shown.length / size));
    page = Math.min(page, pages - 1);
    clear(head, h("tr", null, columns.map(headCell)));
    clear(body, shown.slice(page * size, (page + 1) * size).map(line));
    if (!shown.length) clear(body, h("tr", null, h("td", { colspan: columns.length, class: "none" }, none ?? "Nothing yet.")));
    clear(pager);
    if (pages > 1) add(pager, turn("Newer", page > 0, page - 1), h("span", null, `${page * size + 1} to ${Math.min(shown.length, (page + 1) * size)} of ${shown.length}`), turn("Older", page < pages - 1, page + 1));
    if (order && pager.firstChild && pages > 1) {
      pager.firstChild.textContent = "Previous";
      pager.lastChild.textContent = "Next";
    }
  }

  function turn(text, can, to) {
    return h("button", { type: "button", disabled: !can, onclick: () => {
      page = to;
      draw();
      scroll.scrollTop = 0;
      say(`Page ${page + 1}`);
    } }, text);
  }

  function headCell(column, index) {
    const kind = column.number ? "number" : null;
    if (!column.by) return h("th", { scope: "col", class: kind }, column.name);
    const is = order?.column === index;
    return h("th", { scope: "col", class: kind, "aria-sort": is ? (order.down ? "descending" : "ascending") : null },
      h("button", { type: "button", class: "sort", onclick: () => {
        order = { column: index, down: is ? !order.down : Boolean(column.number) };
        page = 0;
        draw();
        head.querySelectorAll("th")[index].querySelector("button").focus();
      } }, column.name, h("span", { "aria-hidden": "true" }, is ? (order.down ? " ↓" : " ↑") : "")));
  }

  function line(row) {
    const cells = columns.map((column, index) => {
      const content = column.cell(row);
      const kind = [column.number ? "number" : "", column.kind ?? ""].join(" ").trim() || null;
      if (index === 0 && onpick) {
        return h("td", { class: kind }, h("button", { type: "button", class: "link", onclick: () => onpick(row) }, content));
      }
      return h("td", { class: kind }, content);
    });
    return h("tr", null, cells);
  }

  node.update = (next) => {
    all = next;
    const held = scroll.scrollTop;
    draw();
    scroll.scrollTop = held;
  };
  draw();
  return node;
}

// Names with their values, for people.
export function facts(pairs) {
  return h("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}
