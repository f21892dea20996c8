// Keeps pages as they are at the gateway, and has keys for what the mouse does. Every page works without it.
"use strict";

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const isTyping = (element) => /^(INPUT|TEXTAREA|SELECT)$/.test(element?.tagName ?? "");

// Puts fresh HTML, which the gateway has escaped, in the place of an element, and keeps the keyboard where it was.
function replace(shown, html) {
  const holder = document.createElement("template");
  holder.innerHTML = html;
  const fresh = holder.content.firstElementChild;
  if (!fresh || fresh.outerHTML === shown.outerHTML) return;
  const at = all("a, button", shown).indexOf(document.activeElement);
  shown.replaceWith(fresh);
  if (at >= 0) (all("a, button", fresh)[at] ?? one("a, button", fresh))?.focus();
}

// Loads the page again, and takes the part of it with this id.
async function reload(id) {
  const answer = await fetch(location.href, { headers: { accept: "text/html" }, redirect: "error" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(id);
  const shown = document.getElementById(id);
  if (!fresh || !shown || fresh.innerHTML === shown.innerHTML) return;
  const name = document.activeElement?.closest("[data-name]")?.dataset.name;
  const at = name ? all("a, button", document.activeElement.closest("[data-name]")).indexOf(document.activeElement) : -1;
  shown.innerHTML = fresh.innerHTML;
  const row = name && one(`[data-name="${CSS.escape(name)}"]`, shown);
  if (row) (all("a, button", row)[at] ?? one("a", row))?.focus();
}

function followLists(lists) {
  const events = new EventSource(lists.dataset.live);
  events.addEventListener("rows", (event) => {
    const { list, rows } = JSON.parse(event.data);
    for (const [name, html] of Object.entries(rows)) {
      const shown = one(`#${list} [data-name="${CSS.escape(name)}"]`);
      if (shown) replace(shown, html);
    }
  });
  // There are other rows, or another order.
  events.addEventListener("lists", () => reload("lists").catch(() => {}));
  addEventListener("pagehide", () => events.close());
}

// A page that waits for something looks again until its mark is gone.
function followPart(part) {
  const again = async () => {
    if (!document.hidden) await reload(part.id).catch(() => {});
    if (document.getElementById(part.id)) setTimeout(again, Number(part.dataset.again));
  };
  setTimeout(again, Number(part.dataset.again));
}

// Checks a devfile while it is typed: what the gateway finds stands below, with lines to go to.
function checkWhileTyping(area) {
  const found = document.getElementById(area.dataset.found);
  let timer, running;
  const check = async () => {
    running?.abort();
    running = new AbortController();
    try {
      const body = new URLSearchParams(new FormData(area.form));
      body.set("check", "1");
      const answer = await fetch(area.form.getAttribute("action"), { method: "POST", body, signal: running.signal });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      found.innerHTML = page.getElementById(found.id)?.innerHTML ?? "";
    } catch {
      // The next key, or the button, asks again.
    }
  };
  area.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(check, 500);
  });
  found.addEventListener("click", (event) => {
    const line = Number(event.target.closest("a[data-line]")?.dataset.line);
    if (!line) return;
    event.preventDefault();
    const lines = area.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    area.focus();
    area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  });
}

function copyButtons() {
  if (!navigator.clipboard) return;
  for (const text of all("[data-copy]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    (text.closest("pre") ?? text).after(button);
  }
}

let before = "";
function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  const rows = all("[data-name] h3 a, #shared .links a:first-child");
  const at = rows.findIndex((row) => row.closest("[data-name]") === document.activeElement?.closest("[data-name]"));
  const go = { gh: "/", gc: "/create" }[before + event.key];
  before = event.key === "g" ? "g" : "";
  if (go) location.assign(go);
  else if (event.key === "/" && one("#q")) one("#q").focus();
  else if (event.key === "?") one("#keys").showModal();
  else if (event.key === "j" && rows.length) rows[Math.min(at + 1, rows.length - 1)].focus();
  else if (event.key === "k" && rows.length) rows[Math.max(at - 1, 0)].focus();
  else return;
  event.preventDefault();
}

document.addEventListener("keydown", onKey);
copyButtons();
if (one("#lists[data-live]")) followLists(one("#lists"));
all("[data-again]").forEach(followPart);
all("textarea[data-found]").forEach(checkWhileTyping);
