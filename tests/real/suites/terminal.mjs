// People at a terminal in Chromium. Run by terminal.sh.

import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, essential, open, options, record, reload, signInAs, step, until } from "../lib/browser.mjs";
import { adaptationMistakes, mistakes } from "../lib/pages.mjs";

const { terminal, out, users, links } = options();
const { browser, context: ann } = await open(out);

const screen = (page) => page.evaluate(() => globalThis.screenText?.() ?? "");
const shows = (page, text, seconds = 20) => until(`${JSON.stringify(text)} on the screen`, seconds, async () => (await screen(page)).includes(text));
const status = (page) => page.getAttribute("#status", "data-kind");
const connected = (page) => until("connected", 30, async () => (await status(page)) === "connected");
// Presses the button that tries again, if it is still there: the page tries by itself too.
const hurry = (page) => page.evaluate(() => document.querySelector("#act:not([hidden])")?.click());
const count = (text, part) => text.split(part).length - 1;

async function type(page, text) {
  await page.locator("#screen").click();
  await page.keyboard.type(text);
}

// Opens the terminal, through the provider's own pages.
async function openAs(context, name) {
  const page = await context.newPage();
  const seen = record(page);
  await page.goto(`${terminal}/`, { waitUntil: "domcontentloaded" });
  await signInAs(page, name);
  await page.waitForURL((url) => url.host === new URL(terminal).host);
  return { page, seen };
}

let page, seen;
await essential("the owner signs in and has a shell", await ann.newPage(), out, async () => {
  ({ page, seen } = await openAs(ann, "ann"));
  await connected(page);
  await shows(page, "$");
  if (await page.isVisible("#job")) return "a bar for a job, and there is none";
});
await essential("what is typed runs", page, out, async () => {
  await type(page, "echo answer-$((6*7)) $TERM secret-typed\n");
  await shows(page, "answer-42 xterm-256color secret-typed");
});
await step("a window that gets smaller makes the terminal smaller, for the shell too", page, out, async () => {
  const size = async (mark) => {
    await type(page, `echo ${mark}:$(stty size):\n`);
    const found = await until("a size", 10, async () => new RegExp(`${mark}:(\\d+) (\\d+):`).exec(await screen(page)));
    return [Number(found[1]), Number(found[2])];
  };
  const [rows, columns] = await size("before");
  await page.setViewportSize({ width: 800, height: 500 });
  // The page waits for a window that is being dragged.
  let asked = 0;
  const [fewer, narrower] = await until("a smaller size", 30, async () => {
    const now = await size(`after-${(asked += 1)}`);
    return now[0] < rows && now[1] < columns && now;
  });
  if (!(fewer > 5 && narrower > 40)) return `${rows}x${columns}, then ${fewer}x${narrower}`;
});

// --- more than one ----------------------------------------------------------------------------------------------------------

const other = await ann.newPage();
await step("a second page of the same user shows the same, and types into it", other, out, async () => {
  await other.goto(`${terminal}/`, { waitUntil: "domcontentloaded" });
  await connected(other);
  await shows(other, "answer-42");
  await type(other, "echo from-the-other-$((1+1))\n");
  await shows(page, "from-the-other-2");
  await until("two viewers are told", 10, async () => (await page.textContent("#notes")).includes("2 viewers"));
});
const { page: bob } = await openAs(await browser.newContext(), "bob");
await step("somebody with whom it is shared sees it, and is told that this is all", bob, out, async () => {
  await connected(bob);
  await shows(bob, "from-the-other-2");
  if (!(await bob.textContent("#notes")).includes("Read only")) return await bob.textContent("#notes");
  if (await bob.isVisible("#new")) return "a button for a new terminal";
});
await step("what they type goes nowhere, also past the page", bob, out, async () => {
  await type(bob, "echo intruder\n");
  const told = await bob.evaluate(async () => {
    const answer = await fetch("terminals", { method: "POST", headers: { "content-type": "application/json" }, body: '{"columns":80,"rows":24}' });
    return `${answer.status} ${(await answer.json()).error}`;
  });
  if (told !== "403 read_only") return told;
  await type(page, "echo after-$((2+2))\n");
  await shows(bob, "after-4");
  if ((await screen(page)).includes("intruder")) return "it arrived";
});
await step("a program that asks the terminal something is answered once, however many look", page, out, async () => {
  // The first answer takes as long as it takes; what comes less than 1.5 s behind it is one too many.
  const read = "dd bs=1 count=1 2>/dev/null; stty min 0 time 15; head -c 200";
  await type(page, `s=$(stty -g); stty raw -echo min 1 time 0; printf '\\033[c'; a=$({ ${read}; } | od -An -tx1 | tr -d ' \\n'); stty $s; echo answers:$a:\n`);
  const [, hex] = await until("an answer", 20, async () => /answers:([0-9a-f]*):/.exec(await screen(page)));
  const answers = count(Buffer.from(hex, "hex").toString("latin1"), "\x1b[?");
  if (answers !== 1) return `${answers} answers: ${hex}`;
});
await step("a page that is loaded again shows what was there, and answers no old question", page, out, async () => {
  await reload(page, seen);
  await connected(page);
  await shows(page, "answer-42");
  await shows(page, "answers:");
  await type(page, "echo clean-$((3+3))\n");
  await shows(page, "clean-6");
  const line = (await screen(page)).split("\n").find((line) => line.includes("echo clean-"));
  if (line.trim() !== "$ echo clean-$((3+3))") return line;
});
await other.close();

// --- connections that break -------------------------------------------------------------------------------------------------

await step("connections that break on both sides of the gateway lose and repeat nothing", page, out, async () => {
  await type(page, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo number-$i-; [ $((i%20)) = 0 ] && sleep 0.02; done; echo all-$((1+1))\n");
  for (const pid of [users, links, users]) {
    await page.waitForTimeout(500);
    process.kill(Number(pid), "SIGUSR1");
  }
  // Typed into a page that may not know yet.
  await page.keyboard.type("echo blind-$((4+4))\n");
  await shows(page, "blind-8", 60);
  const text = await screen(page);
  let at = 0;
  for (let number = 1; number <= 3000; number += 1) {
    const found = text.indexOf(`number-${number}-`, at);
    if (found < 0) return `number ${number} is missing or out of its place`;
    at = found;
  }
  if (count(text, "number-3000-") !== 1 || count(text, "all-2") !== 1 || count(text, "blind-8") !== 1) return "something came twice";
});
await step("a page that cannot get through says so, and how long it waits", page, out, async () => {
  await ann.setOffline(true);
  process.kill(Number(users), "SIGUSR1");
  await until("it says so", 40, async () => /Trying again in \d+ s/.test(await page.textContent("#status")));
  await ann.setOffline(false);
  await hurry(page);
  await connected(page);
  await type(page, "echo back-$((5+5))\n");
  await shows(page, "back-10");
});

await step("a page that was away for more than a terminal keeps is told how much it did not see", page, out, async () => {
  const [go, wrote] = [join(out, "go"), join(out, "wrote")];
  // A progress bar of a long run: few lines, and many bytes.
  await type(page, `while [ ! -e ${go} ]; do sleep 0.1; done; head -c 3000000 /dev/zero | tr '\\0' '\\r'; echo; touch ${wrote}; echo long-$((6+6))\n`);
  await shows(page, "touch");
  await ann.setOffline(true);
  process.kill(Number(users), "SIGUSR1");
  await until("it is away", 40, async () => (await status(page)) === "waiting");
  writeFileSync(go, "");
  await until("the shell went on", 60, () => existsSync(wrote));
  await ann.setOffline(false);
  await hurry(page);
  await connected(page);
  await shows(page, "long-12", 60);
  if (!/[\d,.\s]{7,} bytes before this were not kept/.test(await screen(page))) return (await screen(page)).slice(0, 300);
  await type(page, "clear; echo back-$((5+5))\n");
  await shows(page, "back-10");
});

// --- the page ---------------------------------------------------------------------------------------------------------------

await step("it is dark or light, as the system is", page, out, async () => {
  const colour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await colour();
  await page.screenshot({ path: join(out, "dark.png") });
  await page.emulateMedia({ colorScheme: "light" });
  const light = await colour();
  await page.screenshot({ path: join(out, "light.png") });
  if (dark === light) return `both are ${dark}`;
});
await step("no violation of axe, in both schemes, wide and narrow", page, out, () =>
  mistakes(page, { shot: (form) => page.screenshot({ path: join(out, `page-${form}.png`) }) }));
await step("a key leads out of the terminal, and a second terminal is a tab away", page, out, async () => {
  await page.locator("#screen").click();
  await page.keyboard.press("Shift+F6");
  if ((await page.evaluate(() => document.activeElement.textContent)) !== "Terminal 1") return await page.evaluate(() => document.activeElement.outerHTML);
  await page.click("#new");
  await until("two tabs", 10, async () => (await page.locator("#tabs button").count()) === 2);
  await connected(page);
  await shows(page, "$");
  if ((await screen(page)).includes("number-1-")) return "the screen of the other one";
});
await step("in colours of the system nothing is lost, and nothing moves that is not to", page, out, () =>
  adaptationMistakes(page, { shot: () => page.screenshot({ path: join(out, "forced.png") }) }));
await step("a shell that ends says with which status", page, out, async () => {
  await type(page, "exit 3\n");
  await until("the end", 20, async () => (await page.textContent("#status")).includes("ended with status 3"));
  await page.click("#tabs button >> nth=0");
  await connected(page);
  await shows(page, "back-10");
});
await step("an agent that was started anew is told, and a new terminal is offered", page, out, async () => {
  writeFileSync(join(out, "restart"), "");
  await until("the agent is started anew", 30, () => existsSync(join(out, "restarted")));
  await until("it is told", 60, async () => (await page.textContent("#status")).includes("started anew"));
  await page.click("#act");
  await connected(page);
  await type(page, "echo fresh-$((6+6))\n");
  await shows(page, "fresh-12");
});
const errors = seen.errors.filter((text) => !/ERR_|Failed to load resource|WebSocket connection/.test(text));
check("the page complains of nothing", errors.length === 0, errors.join(" | "));
await browser.close();
end();
