// Dashboards in number. Run by dashboard-load.sh.

import { readFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import { check, end, open, options, signIn } from "../lib/browser.mjs";

const { out, site, users, pid, link } = options();
const { hostname, port } = new URL(site);
const tokens = readFileSync(users, "utf8").trim().split("\n");
const agent = new Agent({ keepAlive: true, maxSockets: 32 });

function ask(method, path, token, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const began = performance.now();
    const options = { host: "127.0.0.1", port, method, path, agent, headers: { host: `${hostname}:${port}`, authorization: `Bearer ${token}`, ...headers } };
    if (body) options.headers["content-type"] = "application/json";
    const sent = request(options, (answer) => {
      const parts = [];
      answer.on("data", (part) => parts.push(part));
      answer.on("end", () => resolve({ status: answer.statusCode, headers: answer.headers, body: Buffer.concat(parts), ms: performance.now() - began }));
    });
    sent.on("error", reject);
    sent.end(body && JSON.stringify(body));
  });
}

// The gateway's memory in KiB, and the processor time that it took, in seconds.
const memory = () => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
const processor = () => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const percentile = (numbers, percent) => numbers.toSorted((a, b) => a - b)[Math.ceil((numbers.length * percent) / 100) - 1];

async function each(number, at, action) {
  let next = 0;
  await Promise.all(Array.from({ length: at }, async () => {
    while (next < number) await action(next++);
  }));
}

// One user with a thousand.
await each(1000, 2, async (index) => {
  const made = await ask("POST", "/api/v1/workspaces", process.env.REAL_USER_TOKEN, { name: `one-${index}`, executor: "external" });
  if (made.status !== 201) throw new Error(`${made.status} ${made.body}`);
});
const pages = [];
for (let round = 0; round < 200; round += 1) pages.push(await ask("GET", "/", process.env.REAL_USER_TOKEN, undefined, { accept: "text/html", "accept-encoding": "gzip" }));
const bytes = pages.at(-1).body.length;
const times = pages.map((page) => page.ms);
console.log(`note a page of 1,000 workspaces: ${(bytes / 1024).toFixed(1)} KiB compressed, p50 ${percentile(times, 50).toFixed(1)} ms, p99 ${percentile(times, 99).toFixed(1)} ms, whole`);
check("a page of a thousand workspaces is compressed to 60 KiB at most", pages.at(-1).headers["content-encoding"] === "gzip" && bytes <= 60 * 1024, `${bytes}`);
check("and is made within 50 ms, 99 times of 100", percentile(times, 99) <= 50, times.map((ms) => ms.toFixed(0)).join(" "));
const { browser, context } = await open(out);
const page = await context.newPage();
await signIn(page, link);
await page.goto(site, { waitUntil: "load" });
const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
console.log(`note first paint after ${paint?.toFixed(0)} ms`);
check("it is painted within a second", paint <= 1000, `${paint}`);
await browser.close();

// Five hundred users with two each, and their pages.
const names = [];
await each(tokens.length * 2, 8, async (index) => {
  const token = tokens[index >> 1];
  const made = await ask("POST", "/api/v1/workspaces", token, { name: `two-${index}`, executor: "kubernetes", agent: "unique" });
  if (made.status !== 201) throw new Error(`${made.status} ${made.body}`);
  names[index] = { name: `two-${index}`, token };
});
await wait(3000);

// Ten changes a second for so long; the share of a processor that the gateway takes meanwhile, and how many were made.
async function change(seconds, turn) {
  const [busy, began] = [processor(), performance.now()];
  let changes = 0;
  for (let tick = 0; tick < seconds * 10; tick += 1) {
    const { name, token } = names[(turn + tick * 7) % names.length];
    const done = await ask("PATCH", `/api/v1/workspaces/${name}`, token, { desired_state: "Stopped" });
    if (done.status === 200) changes += 1;
    await wait(Math.max(0, (tick + 1) * 100 - (performance.now() - began)));
  }
  await wait(1000);
  return { changes, share: (processor() - busy) / ((performance.now() - began) / 1000) };
}
const alone = await change(20, 3);
const before = memory();
let events = 0;
let ended = 0;
const streams = await Promise.all(tokens.map((token) => new Promise((resolve, reject) => {
  const sent = request({ host: "127.0.0.1", port, path: "/live", headers: { host: `${hostname}:${port}`, authorization: `Bearer ${token}` } }, (answer) => {
    if (answer.statusCode !== 200) return reject(new Error(`${answer.statusCode}`));
    answer.setEncoding("utf8");
    answer.on("data", (text) => { events += text.split("event: rows").length - 1; });
    answer.on("close", () => { ended += 1; });
    answer.on("error", () => {});
    resolve(sent);
  });
  sent.on("error", () => {});
  sent.end();
})));
await wait(5000);
const each_kib = (memory() - before) / streams.length;
const idle = processor();
await wait(20_000);
const idle_share = (processor() - idle) / 20;
events = 0;
const SECONDS = 30;
const { changes, share } = await change(SECONDS, 0);
console.log(`note ${streams.length} open pages: ${each_kib.toFixed(1)} KiB each; ${(idle_share * 100).toFixed(1)} % of one processor without changes, ` +
  `${(share * 100).toFixed(1)} % with ${(changes / SECONDS).toFixed(1)} changes a second, which take ${(alone.share * 100).toFixed(1)} % without any page; ${events} rows sent`);
check("each change is shown to its owner", events >= changes, `${events} of ${changes}`);
check("an open page takes at most 32 KiB", each_kib <= 32, `${each_kib}`);
check("all of them take a tenth of a processor at most", share - alone.share <= 0.1, `${share} with, ${alone.share} without`);
// A token that is revoked ends its streams.
const { tokens: own } = JSON.parse((await ask("GET", "/api/v1/tokens", tokens[0])).body);
const revoked = performance.now();
const before_end = ended;
await ask("DELETE", `/api/v1/tokens/${own[0].id}`, tokens[0]);
while (ended === before_end && performance.now() - revoked < 10_000) await wait(20);
console.log(`note a stream ended ${((performance.now() - revoked) / 1000).toFixed(1)} s after its sign-in`);
check("a stream ends within 5 s of its sign-in", performance.now() - revoked <= 5000);
streams.forEach((sent) => sent.destroy());
end();
