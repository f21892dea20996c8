// Keeps the list and the page of one request as they are in the agent, and has keys for what the mouse does. Each page works without it.
const one = (selector) => document.querySelector(selector);

// Times are in the reader's own zone.
function localise(within) {
  for (const time of within.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = time.dateTime;
    time.textContent = time.closest(".exchange") ? at.toLocaleTimeString() : at.toLocaleString();
  }
}

// Takes a part of a page that was loaded again into this one.
async function reload(id) {
  const answer = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const [now, next] = [document.getElementById(id), page.getElementById(id)];
  if (!now || !next) return;
  const open = [...now.querySelectorAll("details")].map((details) => details.open);
  now.replaceChildren(...next.childNodes);
  now.querySelectorAll("details").forEach((details, at) => { details.open = open[at] ?? false; });
  localise(now);
  offerCopies(now);
}

function offerCopies(within) {
  for (const button of within.querySelectorAll(".copy")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copies).textContent);
      button.textContent = "Copied";
    });
  }
}

function follow(address, { rows, many }) {
  const events = new EventSource(address);
  const status = one("#live");
  events.addEventListener("begun", () => { status.textContent = "Live"; });
  events.addEventListener("error", () => { status.textContent = "Not connected"; });
  events.addEventListener("rows", (event) => rows(JSON.parse(event.data)));
  events.addEventListener("many", many);
  addEventListener("pagehide", () => events.close());
  return events;
}

function followList(box) {
  const list = one("#rows");
  const show = ({ first, rows }) => {
    for (const { id, html } of rows) {
      // The agent has escaped all that is not its own.
      const made = document.createElement("template");
      made.innerHTML = html;
      const row = made.content.firstElementChild;
      localise(made.content);
      const old = document.getElementById(`x${id}`);
      const hadFocus = old?.contains(document.activeElement);
      if (old) old.replaceWith(row);
      else {
        const later = [...list.children].find((other) => Number(other.id.slice(1)) < id);
        list.insertBefore(row, later ?? null);
      }
      if (hadFocus) row.querySelector("a").focus();
    }
    for (const row of [...list.children].reverse()) {
      if (Number(row.id.slice(1)) >= first) break;
      row.remove();
    }
    one("#none").hidden = list.children.length > 0;
  };
  const { seen, query } = box.dataset;
  follow(`/live?seen=${seen}${query ? `&${query}` : ""}`, { rows: show, many: () => reload("list") });
}

function followExchange(box) {
  const { id, seen } = box.dataset;
  let isLoading = false;
  let isStale = false;
  const show = async () => {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    while (isStale) {
      isStale = false;
      await reload("exchange").catch(() => {});
    }
    isLoading = false;
  };
  follow(`/live?id=${id}&seen=${seen}`, { rows: show, many: show });
}

function step(by) {
  const links = [...document.querySelectorAll(".exchange a")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(Math.max(at + by, 0), links.length - 1)].focus();
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, dialog")) {
    if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
    return;
  }
  const keys = {
    "/": () => one("#q")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    e: () => one("#edit")?.click(),
    u: () => one("#back")?.click(),
    "?": () => one("#keys").showModal(),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

localise(document);
offerCopies(document);
if (one("#list")) followList(one("#list"));
if (one("#exchange")) followExchange(one("#exchange"));
