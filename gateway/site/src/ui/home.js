// Keeps the list of workspaces as it is at the gateway, without a reload by hand: what changed is replaced, the rest stays,
// and so does the place of the keyboard.
"use strict";

const INTERVAL_MS = 3000;

const items = (main) => new Map([...main.querySelectorAll("li[data-name]")].map((item) => [item.dataset.name, item]));
const controls = (item) => [...item.querySelectorAll("a, button")];

function replace(shown, fresh) {
  const at = controls(shown).indexOf(document.activeElement);
  shown.replaceWith(fresh);
  if (at >= 0) controls(fresh)[at]?.focus();
}

function take(fresh) {
  const main = document.querySelector("main");
  const [old, now] = [items(main), items(fresh)];
  if ([...old.keys()].join() !== [...now.keys()].join()) {
    main.replaceChildren(...fresh.childNodes);
    return;
  }
  for (const [name, item] of now) {
    if (item.innerHTML !== old.get(name).innerHTML) replace(old.get(name), item);
  }
}

async function follow() {
  if (!document.hidden) {
    try {
      const answer = await fetch("/", { headers: { accept: "text/html" }, redirect: "error" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main");
      if (answer.ok && fresh) take(fresh);
    } catch {
      // The gateway is away, or the sign-in is over: the page stays as it was, and asks again.
    }
  }
  setTimeout(follow, INTERVAL_MS);
}

setTimeout(follow, INTERVAL_MS);
