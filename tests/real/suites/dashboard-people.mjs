// Ann shares a port of her machine with Bob; Olga operates the gateway. Run by dashboard-people.sh.

import { spawn } from "node:child_process";
import { delimiter, dirname, join } from "node:path";
import { check, end, essential, open, options, record, save, signInAs, step, until } from "../lib/browser.mjs";

const { out, site, provider, port, folder } = options();
const app = `http://${port}-laptop.localhost:${new URL(site).port}/`;
const { browser, context } = await open(out);
const seen = {};
const shot = (page, name) => page.screenshot({ path: join(out, `${name}.png`), fullPage: true });

// A browser of a person who comes for the first time, led through the provider's pages to the first page.
async function comes(name, within) {
  const page = await within.newPage();
  seen[name] = record(page);
  await essential(`${name} signs in with the provider, and is at the first page`, page, out, async () => {
    await page.goto(site);
    if (!page.url().startsWith(provider)) return `at ${page.url()} instead of the provider`;
    await signInAs(page, name);
    await page.waitForURL(`${site}/`);
    await page.locator("header .user").getByText(name, { exact: true }).waitFor();
  });
  return page;
}
async function another() {
  const own = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  own.setDefaultTimeout(30_000);
  return own;
}

// --- Ann --------------------------------------------------------------------------------------------------------------------

const ann = await comes("ann", context);
let machine;
const endMachine = () => {
  try {
    process.kill(-machine.pid, "SIGTERM");
  } catch {
    // It has ended, or never began.
  }
};
process.on("exit", endMachine);
process.on("SIGTERM", () => process.exit(143));
await essential("she connects a machine by the command that she copies", ann, out, async () => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: site });
  await ann.getByRole("link", { name: "Make the first one" }).click();
  await ann.locator("#machine-name").fill("laptop");
  await ann.getByRole("button", { name: "Get the command" }).click();
  await ann.getByRole("button", { name: "Copy" }).click();
  await ann.getByRole("button", { name: "Copied" }).waitFor();
  const command = await ann.evaluate(() => navigator.clipboard.readText());
  if (!command.includes("workspace-agent run --gateway http")) return command;
  // As a shell has it, with the program under test in the path.
  const path = [dirname(process.env.REAL_AGENT), process.env.PATH].join(delimiter);
  machine = spawn("/bin/sh", ["-c", command], { cwd: folder, env: { ...process.env, PATH: path, NO_COLOR: "1" }, stdio: "inherit", detached: true });
  await ann.waitForURL(`${site}/workspaces/laptop`, { timeout: 20_000 });
});
async function share(more = async () => {}) {
  if (!(await ann.getByLabel("Port", { exact: true }).isVisible())) await ann.getByText("Share a port").click();
  await ann.getByLabel("Port", { exact: true }).fill(port);
  await ann.getByLabel("Name of the user or group").fill("bob");
  await more();
  await ann.getByRole("button", { name: "Share", exact: true }).click();
}
await step("a name without a sign-in so far is asked about before it gets a port", ann, out, async () => {
  await share();
  await ann.getByRole("alert").getByText("no sign-in under this name").waitFor();
  await ann.goto(`${site}/workspaces/laptop`);
  await ann.getByRole("row", { name: new RegExp(`port ${port}`) }).getByText("you alone").waitFor();
});
await essential("she shares a port with Bob by his name", ann, out, async () => {
  await share(() => ann.getByLabel("The user has never signed in here").check());
  await ann.getByRole("row", { name: new RegExp(`port ${port}`) }).getByText("the user bob", { exact: true }).waitFor();
});
await shot(ann, "shared");

// --- Bob --------------------------------------------------------------------------------------------------------------------

const list = await comes("bob", await another());
await essential("he sees it under what others share with him, and not as his own", list, out, async () => {
  await list.getByRole("heading", { name: "No workspaces of your own yet." }).waitFor();
  await list.getByRole("heading", { name: "Shared with you" }).waitFor();
  const row = await list.locator('#shared [data-name="laptop"]').innerText();
  if (!row.includes("of ann") || !row.includes("● ready")) return row;
});
await shot(list, "bob");
const opened = await list.context().newPage();
await essential("its link opens the port, and the app answers", opened, out, async () => {
  await opened.goto(await list.locator("#shared .links a").first().getAttribute("href"));
  if (opened.url() !== app) return `at ${opened.url()}`;
  const text = (await opened.locator("body").innerText()).trim();
  if (text !== "people-app") return text;
});
await essential("so does its WebSocket", opened, out, async () => {
  const said = await opened.evaluate(() => {
    window.stream = new WebSocket(location.href.replace(/^http/, "ws"));
    window.streamEnded = new Promise((resolve) => window.stream.addEventListener("close", () => resolve("closed")));
    return new Promise((resolve, reject) => {
      window.stream.addEventListener("open", () => window.stream.send("hello"));
      window.stream.addEventListener("message", (event) => resolve(event.data.text?.() ?? event.data));
      window.stream.addEventListener("error", () => reject(new Error("no stream")));
    });
  });
  if (said !== "hello") return said;
});
const refused = await list.context().newPage();
// The page of the workspace, which is its owner's.
async function owners(status) {
  const answer = await refused.goto(`${site}/workspaces/laptop`);
  const text = await refused.locator("body").innerText();
  if (answer.status() !== status || text.includes("Share a port")) return `status ${answer.status()}, ${text}`;
}
await step("its page is its owner's: he is told that it is not his", refused, out, () => owners(403));
await step("he is no operator: no link leads to those pages, and each refuses him", refused, out, async () => {
  if ((await list.locator('header a[href="/operator"]').count()) !== 0) return "a link leads there";
  for (const path of ["/operator", "/operator/users", "/operator/audit"]) {
    const answer = await refused.goto(site + path);
    const code = answer.headers()["gateway-error"];
    if (answer.status() !== 403 || code !== "forbidden") return `${path}: status ${answer.status()}, ${code}`;
    await refused.getByText("Only operators may do that").waitFor();
  }
});
await shot(refused, "no-operator");

// --- the share is revoked -----------------------------------------------------------------------------------------------------

let revoked;
await essential("Ann sees that he is there, and revokes it on the page", ann, out, async () => {
  await ann.reload();
  await ann.locator("section", { has: ann.getByRole("heading", { name: "Open now" }) }).getByRole("row", { name: /^bob/ }).waitFor();
  await ann.getByRole("button", { name: /^Revoke access of the user bob/ }).click();
  await ann.getByRole("row", { name: new RegExp(`port ${port}`) }).getByText("you alone").waitFor();
  revoked = Date.now();
});
await step("what Bob has open ends within 5 s", opened, out, async () => {
  const how = await Promise.race([opened.evaluate(() => window.streamEnded), new Promise((resolve) => setTimeout(resolve, 6_000, "still open"))]);
  const took = Date.now() - revoked;
  if (how !== "closed" || took > 5_000) return `${how} after ${took} ms`;
  console.log(`note his stream was cut ${took} ms after the page said so`);
});
await step("his open page gets no answer of the app any more", opened, out, async () => {
  const got = await opened.evaluate(async () => {
    const answer = await fetch("/");
    return `${answer.status} ${answer.headers.get("gateway-error")}`;
  });
  if (got !== "404 no_such_host") return got;
});
await step("opening it again is refused, as if there were none", opened, out, async () => {
  const answer = await opened.goto(app);
  if (answer.status() !== 404 || answer.headers()["gateway-error"] !== "no_such_host") return `status ${answer.status()}`;
  if ((await opened.locator("body").innerText()).includes("people-app")) return "the app answered";
});
await shot(opened, "refused");
await step("and its page says no longer that there is one", refused, out, () => owners(404));

// --- Olga -------------------------------------------------------------------------------------------------------------------

const olga = await comes("olga", await another());
await step("who is in the group sees the operators' pages", olga, out, async () => {
  await olga.locator("header").getByRole("link", { name: "Operator" }).click();
  await olga.getByRole("heading", { level: 1, name: "Operator" }).waitFor();
  for (const [topic, words] of [["users", ["ann", "bob", "olga"]], ["workspaces", ["laptop", "ann"]], ["agents", ["laptop"]], ["configuration", ["operators"]]]) {
    await olga.getByRole("navigation", { name: "Topics" }).getByRole("link", { name: topic, exact: true }).click();
    await olga.waitForURL(`${site}/operator/${topic}`);
    const text = await olga.locator("main").innerText();
    for (const word of words) if (!text.includes(word)) return `${topic} lacks ${word}`;
  }
});
await shot(olga, "operator");
await step("and what Ann changed, and what Bob was refused", olga, out, async () => {
  await olga.goto(`${site}/operator/audit?workspace=laptop`);
  const rows = await olga.getByRole("row", { name: /shares_changed/ }).allInnerTexts();
  if (rows.length !== 2 || !rows.every((row) => row.includes("ann") && row.includes(`${port} user:bob`))) return rows.join(" | ");
  await olga.goto(`${site}/operator/refusals?user=bob`);
  await olga.getByRole("row", { name: /no_such_host/ }).first().waitFor();
});
await step("the group opens no workspace to her", olga, out, async () => {
  const answer = await olga.goto(app);
  if (answer.status() !== 404) return `status ${answer.status()}`;
  await olga.goto(site);
  if ((await olga.locator('[data-name="laptop"]').count()) !== 0) return "it is in her list";
});

// His list reads shares every 15 s.
await step("Bob's list has dropped it without a reload", list, out, async () => {
  await until("the row is gone", 20, async () => (await list.locator('[data-name="laptop"]').count()) === 0);
  if ((await list.getByRole("heading", { name: "Shared with you" }).count()) !== 0) return "its heading is there";
});

// What is expected in the console are the statuses of pages that are refusals, and the font of the provider's own pages.
const unexplained = Object.entries(seen).flatMap(([name, { errors }]) => errors.filter((text) => !/status of (403|404|422)|fonts.googleapis.com/.test(text)).map((text) => `${name}: ${text}`));
check("no error in a browser", unexplained.length === 0, unexplained.join("; "));
save(out, "record.json", seen);
endMachine();
await browser.close();
end();
