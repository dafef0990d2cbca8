// The shell: which page is shown, who is logged in, what is wrong.

import { api, quiet, Refused } from "./api.js";
import { clear, h, say } from "./dom.js";
import { clock } from "./units.js";

const ROOT = "/trivet/ui";
const PAGES = [
  ["overview", "Overview"],
  ["tenants", "Tenants"],
  ["semantic", "Semantic"],
  ["prefix", "Prefix"],
  ["explain", "Explain"],
];
const THEMES = ["auto", "light", "dark"];
const LIVE = {
  off: ["Not live", "off"],
  connecting: ["Connecting", "off"],
  live: ["Live", "good"],
  lost: ["Connection lost, trying again", "bad"],
  trouble: ["Figures cannot be had", "bad"],
};

const main = document.getElementById("main");
const top_ = document.getElementById("top");
const banner = document.getElementById("banner");
let session = null;
let leave = null;
let shown = 0;

function pageOf(path) {
  const name = path.slice(ROOT.length + 1).replace(/\/$/, "") || "overview";
  return PAGES.some(([known]) => known === name) ? name : null;
}

// ---- theme

function theme() {
  try {
    const kept = localStorage.getItem("trivet-theme");
    return THEMES.includes(kept) ? kept : "auto";
  } catch {
    return "auto";
  }
}

function setTheme(name) {
  document.documentElement.dataset.theme = name;
  try {
    localStorage.setItem("trivet-theme", name);
  } catch { /* a browser without storage forgets it */ }
}

// ---- the bar at the top

function drawTop(current) {
  const links = PAGES.map(([name, label]) => h("a", {
    href: `${ROOT}/${name}`, "aria-current": name === current ? "page" : null,
  }, label));
  const chosen = h("select", { id: "theme", "aria-label": "Colours", onchange: (event) => setTheme(event.target.value) },
    THEMES.map((name) => h("option", { value: name }, `${name[0].toUpperCase()}${name.slice(1)}`)));
  chosen.value = theme();
  const live = h("span", { id: "live", class: "live off", title: "" }, "");
  const out = session?.login === "key" && session.open
    ? h("button", { class: "plain", type: "button", onclick: logOut }, "Log out") : null;
  clear(top_, h("a", { class: "name", href: `${ROOT}/overview` }, "Trivet"),
    session?.open ? h("nav", { "aria-label": "Pages" }, links) : h("nav", null),
    h("div", { class: "tools" }, live, chosen, out));
}

window.addEventListener("trivet-live", ({ detail }) => {
  const node = document.getElementById("live");
  if (!node) return;
  const [text, kind] = LIVE[detail.state];
  node.className = `live ${kind}`;
  node.textContent = detail.state === "live" ? `${text} ${clock(Date.now() / 1000, true)}` : text;
  node.title = detail.message ?? "";
  if (detail.state === "off") node.textContent = "";
});

// ---- errors

export function complain(message, retry) {
  banner.hidden = false;
  clear(banner, h("span", null, message),
    retry ? h("button", { type: "button", onclick: retry }, "Try again") : null,
    h("button", { type: "button", class: "plain", onclick: calm }, "Dismiss"));
}

export function calm() {
  banner.hidden = true;
  banner.replaceChildren();
}

function told(error) {
  if (error instanceof Refused) return error.message;
  console.error(error);
  return "This page could not be drawn. The browser's console says where.";
}

// ---- login

function drawLogin(said) {
  quiet();
  drawTop(null);
  document.title = "Log in · Trivet";
  if (session?.login === "none") {
    clear(main, h("div", { class: "login" }, h("h1", null, "Only from this machine"),
      h("p", null, "No admin key is configured, so the console answers only direct requests from the machine that runs the proxy."),
      h("p", null, "Set TRIVET_ADMIN_KEY for the proxy to log in from elsewhere, or use an SSH tunnel and open http://localhost.")));
    return;
  }
  const key = h("input", { id: "key", type: "password", autocomplete: "current-password", required: true, name: "key" });
  const button = h("button", { type: "submit" }, "Log in");
  const problem = h("p", { class: "problem", role: "alert" }, said ?? "");
  const form = h("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      await api.post(`${ROOT}/session`, { key: key.value });
      await start();
    } catch (error) {
      problem.textContent = told(error);
      key.select();
    } finally {
      button.disabled = false;
    }
  } },
  h("h1", null, "Log in"),
  h("label", { for: "key" }, "Admin key"), key,
  h("p", { class: "hint" }, "The value of TRIVET_ADMIN_KEY that the proxy was started with."),
  problem, button);
  clear(main, form);
  key.focus();
}

async function logOut() {
  try {
    await api.delete(`${ROOT}/session`);
  } catch (error) {
    complain(told(error));
    return;
  }
  await start();
}

window.addEventListener("trivet-logged-out", () => {
  if (!session?.open) return;
  session.open = false;
  leavePage();
  drawLogin("The session has ended. Log in again to go on.");
});

// ---- pages

function leavePage() {
  const leaving = leave;
  leave = null;
  quiet();
  try {
    leaving?.();
  } catch (error) {
    console.error(error);
  }
}

async function show() {
  leavePage();
  calm();
  const mine = ++shown;
  const name = pageOf(location.pathname);
  drawTop(name);
  if (name === null) {
    document.title = "Not found · Trivet";
    clear(main, h("h1", null, "There is no such page"), h("p", null, h("a", { href: `${ROOT}/overview` }, "To the overview")));
    return;
  }
  const place = h("div", { class: `page page-${name}` });
  try {
    const module = await import(`./pages/${name}.js`);
    if (mine !== shown) return;
    document.title = `${module.title} · Trivet`;
    clear(main, h("h1", { class: "unseen" }, module.title), place);
    const cleanup = await module.render(place, api);
    if (mine !== shown) cleanup?.();
    else leave = cleanup ?? null;
    say(`${module.title} is shown`);
  } catch (error) {
    if (mine !== shown || !session?.open) return;
    clear(main, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "This page cannot be shown"),
      h("p", null, told(error)), h("button", { type: "button", onclick: show }, "Try again")));
  }
}

export function go(path) {
  history.pushState(null, "", path);
  show().then(() => main.focus({ preventScroll: true }));
  window.scrollTo(0, 0);
}

document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const to = new URL(link.href, location.href);
  if (to.origin !== location.origin || !to.pathname.startsWith(ROOT) || to.hash) return;
  event.preventDefault();
  go(to.pathname + to.search);
});
window.addEventListener("popstate", show);

async function start() {
  try {
    session = await api.get(`${ROOT}/session`);
  } catch (error) {
    drawTop(null);
    clear(main, h("div", { class: "empty" }, h("p", { class: "empty-title" }, "The proxy does not answer"),
      h("p", null, told(error)), h("button", { type: "button", onclick: start }, "Try again")));
    return;
  }
  if (!session.open) drawLogin();
  else await show();
}

setTheme(theme());
start();
