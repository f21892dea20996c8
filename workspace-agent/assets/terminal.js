// The page: terminals as tabs, the job's bar, and one terminal at a time.

import { ask, change, Connection } from "./connection.js";
import { emulator } from "./emulator.js";

const $ = (id) => document.getElementById(id);
const encoder = new TextEncoder();
const host = location.hostname.split(".")[0].replace(/^\d+-/, "");
const USUAL = { cols: 80, rows: 24 };

let known = { may_type: false, terminals: [], job: null };
let connection = null;
let current = null; // the id of the terminal that is shown
let counting = null; // the timer of a countdown
let told = ""; // the terminal's own title
let mayType = false;
let viewers = 1;

const { terminal, window: size } = emulator($("emulator"), {
  on: { typed: (text) => type(encoder.encode(text)), bytes: type, leave: () => ($("tabs").querySelector("button") ?? $("new")).focus() },
  answers: () => connection?.answers() ?? false,
});
terminal.onTitleChange((title) => ((told = title), entitle()));
// For tests of the page: what is on the screen, as text.
globalThis.screenText = () => {
  const { active } = terminal.buffer;
  return Array.from({ length: active.length }, (_, row) => active.getLine(row)?.translateToString(true) ?? "").join("\n");
};

function type(bytes) {
  if (!mayType || !connection || connection.over) return;
  if (!connection.type(bytes)) status("trouble", "Not typed: too much waits for the connection");
}

// --- words ------------------------------------------------------------------------------------------------------------------

function status(kind, words, seconds = 0) {
  clearInterval(counting);
  $("status").className = kind === "connected" ? "" : kind === "connecting" ? "" : "trouble";
  $("status").dataset.kind = kind;
  $("status").textContent = seconds ? `${words}. Trying again in ${seconds} s` : words;
  offer(seconds ? "Try now" : null, () => connection?.hurry());
  if (!seconds) return;
  counting = setInterval(() => {
    seconds -= 1;
    if (seconds > 0) $("status").textContent = `${words}. Trying again in ${seconds} s`;
  }, 1000);
}

// A line on the screen, where the bytes would be that nobody has any more.
const unkept = (bytes) => `\x1b[7m ${bytes.toLocaleString()} bytes before this were not kept \x1b[0m\r\n`;

// One button beside the status, or none.
function offer(words, act) {
  $("act").hidden = !words;
  $("act").textContent = words ?? "";
  $("act").onclick = act;
}

function entitle() {
  document.title = `${told ? `${told} – ` : ""}${host}`;
  const notes = [];
  if (connection && !mayType) notes.push("Read only: it is shared with you to look at");
  if (viewers > 1) notes.push(`${viewers} viewers`);
  $("notes").textContent = notes.join(" · ");
}

// --- terminals --------------------------------------------------------------------------------------------------------------

async function refresh() {
  const { state, trouble } = await ask();
  if (!state) {
    if (!connection || connection.over) {
      status("trouble", trouble);
      offer("Try again", begin);
    }
    return false;
  }
  know(state);
  return true;
}

function know(state) {
  known = state;
  const buttons = state.terminals.filter(({ ended, id }) => !ended || id === current).map(({ id, number, ended }) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `Terminal ${number}${ended ? " (ended)" : ""}`;
    button.setAttribute("aria-current", String(id === current));
    button.onclick = () => show(id);
    return button;
  });
  $("tabs").replaceChildren(...buttons);
  $("new").hidden = !state.may_type;
  showJob(state.job, state.instance);
}

// Shows a terminal: the one of the address, the one that was made last, or a new one.
async function begin() {
  if (!(await refresh())) return;
  const live = known.terminals.filter(({ ended }) => !ended);
  const wanted = live.find(({ number }) => `#${number}` === location.hash) ?? live.at(-1);
  if (wanted) return show(wanted.id);
  if (known.may_type) return make();
  status("trouble", "No terminal is open: its owner has to open one");
  offer("Look again", begin);
}

async function make() {
  const { cols, rows } = size() ?? USUAL;
  try {
    const { id } = await change("POST", "terminals", { columns: cols, rows });
    if (await refresh()) show(id);
  } catch (error) {
    status("trouble", error.message);
    offer("Try again", make);
  }
}

function show(id) {
  if (id === current && connection && !connection.over) return terminal.focus();
  connection?.close();
  current = id;
  viewers = 1;
  told = "";
  know(known);
  const number = known.terminals.find((one) => one.id === id)?.number;
  if (number) history.replaceState(null, "", `#${number}`);
  const mine = (act) => (...given) => (made === connection ? act(...given) : undefined);
  const on = {
    write: mine((bytes, done) => terminal.write(bytes, done)),
    // In its turn, behind what is still to be parsed.
    reset: mine((missed, done) => terminal.write(`\x1bc${missed > 0 ? unkept(missed) : ""}`, done)),
    size: mine((columns, rows, leads) => {
      terminal.resize(columns, rows);
      $("screen").className = leads ? "fits" : "";
    }),
    viewers: mine((count) => ((viewers = count), entitle())),
    welcome: mine((may) => {
      mayType = may;
      terminal.options.disableStdin = !may;
      entitle();
    }),
    ended: mine((code) => {
      status("ended", code === null ? "The shell has ended" : `The shell has ended with status ${code}`);
      offer(known.may_type ? "New terminal" : null, make);
      refresh();
    }),
    gone: mine((state, restarted) => {
      know(state);
      status("gone", restarted ? "The agent was started anew: what ran in this terminal is gone" : "This terminal is gone");
      offer(state.may_type ? "New terminal" : "Look again", state.may_type ? make : begin);
    }),
    job: mine((state) => showJob(state, made.instance)),
    status: (kind, words, seconds) => (connection === null || made === connection) && status(kind, words, seconds),
    window: size,
  };
  let made = null;
  connection = null;
  made = new Connection(id, known.instance, on);
  connection = made;
  entitle();
  terminal.focus();
}

// --- the job ----------------------------------------------------------------------------------------------------------------

let job = null;
let jobInstance = null; // the agent that runs what is shown: a late choice must not count for the next command of the same job
setInterval(() => job?.phase === "held" && showJob(job, jobInstance), 15_000);

function showJob(state, instance) {
  [job, jobInstance] = [state, instance];
  $("job").hidden = !state;
  if (!state) return;
  const held = state.phase === "held";
  $("job").dataset.phase = state.phase;
  const command = document.createElement("code");
  command.textContent = state.command;
  const words = held ? ` ${ending(state.exit_status)}. ${waits(state.until)}` : state.phase === "running" ? " is running." : ": the job is ending.";
  $("job-text").replaceChildren(command, words);
  for (const id of ["job-continue", "job-fail"]) $(id).disabled = !held || !known.may_type;
}

const ending = (code) => (code === 0 ? "has passed" : `has failed with status ${code}`);

function waits(until) {
  const time = new Date(until * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const minutes = Math.max(0, Math.round((until * 1000 - Date.now()) / 60_000));
  return `The job waits for you until ${time} (${minutes} min).`;
}

async function choose(choice) {
  for (const id of ["job-continue", "job-fail"]) $(id).disabled = true;
  try {
    await change("POST", "job", { choice, instance: jobInstance });
  } catch (error) {
    $("job-text").textContent = error.message;
    setTimeout(refresh, 2000);
  }
}

// --- the idle stop -----------------------------------------------------------------------------------------------------------

const IDLE_PATH = "/.gateway/idle"; // the gateway's own, on the workspace's host
const IDLE_MS = [2_000, 20_000]; // between two looks: sooner, the nearer the stop is
let idleLeft = Infinity;

// Shows that the workspace is about to be stopped. A gateway that does not know says so once, and is not asked again.
async function watchIdle(method = "GET") {
  try {
    const answer = await fetch(IDLE_PATH, { method, headers: { accept: "application/json" }, cache: "no-store" });
    if (answer.status === 404) return false;
    if (answer.ok) showIdle(await answer.json());
  } catch {
    // The gateway is away: the terminal says so.
  }
  return true;
}

function showIdle({ stage, stops_at }) {
  idleLeft = stops_at === null ? Infinity : stops_at * 1000 - Date.now();
  const near = ["announced", "near", "due"].includes(stage);
  $("idle").hidden = !near;
  $("idle").dataset.stage = stage;
  if (!near) return;
  const time = new Date(stops_at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  $("idle-text").textContent = `The workspace is stopped at ${time} unless it is used.`;
}

async function followIdle() {
  if (document.visibilityState === "visible" && !(await watchIdle())) return;
  setTimeout(followIdle, Math.max(IDLE_MS[0], Math.min(IDLE_MS[1], idleLeft / 4)));
}

// --- the page itself --------------------------------------------------------------------------------------------------------

$("new").onclick = make;
$("idle-keep").onclick = () => watchIdle("POST");
$("job-continue").onclick = () => choose("continue");
$("job-fail").onclick = () => choose("fail");
$("screen").setAttribute("aria-label", "Terminal. Shift and F6 leave it");
addEventListener("online", () => connection?.hurry());
addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  connection?.hurry();
  refresh();
});
let resizing = null;
new ResizeObserver(() => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    const { cols, rows } = size() ?? {};
    if (cols && rows) connection?.resized(cols, rows);
  }, 60);
}).observe($("emulator"));

begin();
followIdle();
