// Opens streams of all kinds for many people, takes their access away one by one, and measures until both ends of each stream
// are cut. Run by revocation.sh.

import { execFile, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { check, end, options, until } from "../lib/checks.mjs";
import { Opener, startApps } from "../lib/streams.mjs";
import { ask, Visitor } from "../lib/visitor.mjs";

const { gateway, agent, config, out, public: publicPort, agents, app, tcp, grpc, tries, rounds } = options();
const TRIES = Number(tries);
const LIMIT_MS = 5000; // design, section 5
const SPREAD_MS = 8000; // longer than anything that asks again now and then waits
const site = `http://localhost:${publicPort}`;
const now = () => performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const numbers = (count) => Array.from({ length: count }, (_, at) => at);

// The gateway's commands, as its operator: a process each, on the database, which the gateway does not hear of.
const run = promisify(execFile);
async function command(...words) {
  return (await run(gateway, ["--config", config, ...words])).stdout;
}
// A few at a time.
async function each(list, action) {
  const left = list.values();
  await Promise.all(numbers(4).map(async () => {
    for (const one of left) await action(one);
  }));
}
async function tokenFor(...words) {
  return JSON.parse(await command("token", "create", ...words, "--output", "json"));
}

// The API, as the owner of all workspaces.
const owner = await tokenFor("--user", "ann");
async function api(method, path, body) {
  const headers = { "gateway-authorization": `Bearer ${owner.token}`, "content-type": "application/json" };
  const answer = await ask(`${site}/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
  if (answer.status >= 300) throw new Error(`${method} ${path}: ${answer.status} ${answer.text}`);
  return answer.text && JSON.parse(answer.text);
}
const isByCommand = (at) => at % 4 === 0;
const revokeToken = (at, { id }) => (isByCommand(at) ? command("token", "revoke", id) : api("DELETE", `/tokens/${id}`));

// --- people and their streams -----------------------------------------------------------------------------------------------

const opener = new Opener({ gatewayPort: Number(publicPort), appPort: Number(app), tcpPort: Number(tcp), grpcPort: Number(grpc), gateway });
const WITH_COOKIE = ["WebSocket over HTTP/1.1", "WebSocket over HTTP/2", "event stream", "download", "upload"];
const WITH_TOKEN = [...WITH_COOKIE, "gRPC", "raw TCP (gateway forward)"];
const AGENT = "session of an agent";
const PORTS = [app, tcp, grpc].map(Number);
mkdirSync(join(out, "tokens"));
mkdirSync(join(out, "home"));

// Whoever has a token: their streams, and what takes their access away, which may be a command.
function person(cause, workspace, token, revoke, byCommand = false) {
  const tokenFile = join(out, "tokens", token.id);
  writeFileSync(tokenFile, `${token.token}\n`, { mode: 0o600 });
  return { cause, kinds: WITH_TOKEN, workspace, revoke, byCommand, tokenFile, home: join(out, "home"), fields: { "gateway-authorization": `Bearer ${token.token}` } };
}

// Shares, most of them over the API, which the gateway hears of, and some on the command line, a process each.
const shared = new Set();
const shares = () => [...shared].flatMap((user) => PORTS.map((port) => ({ port, audience: `user:${user}` })));
let replaced = Promise.resolve();
async function withShares(name) {
  const people = [];
  await each(numbers(TRIES), async (at) => {
    const user = `s${name}-${at}`;
    const token = await tokenFor("--user", user);
    if (!isByCommand(at)) {
      shared.add(user);
      people.push(person("share", "by-api", token, (begin) => (replaced = replaced.then(() => {
        // The list is replaced as a whole: one after the other.
        begin();
        shared.delete(user);
        return api("PUT", "/workspaces/by-api/shares", { shares: shares() });
      }))));
    } else {
      const share = (ports, ...more) => Promise.all(ports.map((port) => command("workspace", "share", "by-cli", String(port), "--with", `user:${user}`, ...more)));
      await share(PORTS.slice(1));
      await share(PORTS.slice(0, 1));
      await until(`the shares of ${user} are in effect`, LIMIT_MS / 1000, () => mayUse("by-cli", token));
      people.push(person("share", "by-cli", token, (begin) => (begin(), share(PORTS, "--revoke")), true));
    }
  });
  await api("PUT", "/workspaces/by-api/shares", { shares: shares() });
  return people;
}

// Whether a user gets through to the app, which is the port that is shared last: the gateway reads each second what a command has
// changed, so the streams of the next second might still be refused.
async function mayUse(workspace, { token }) {
  const answer = await ask(`http://${opener.hostOf(app, workspace)}/0`, { headers: { "gateway-authorization": `Bearer ${token}` } });
  return answer.headers["gateway-error"] !== "no_such_host";
}

// Tokens of the owner, again in both ways; and users who are disabled, which only the command line does.
async function withTokens(name) {
  const people = [];
  await each(numbers(TRIES), async (at) => {
    const token = await api("POST", "/tokens", { kind: "user" });
    people.push(person("token", "by-api", token, (begin) => (begin(), revokeToken(at, token)), isByCommand(at)));
    const user = `d${name}-${at}`;
    people.push(person("user", "open", await tokenFor("--user", user), (begin) => (begin(), command("user", "disable", user)), true));
  });
  return people;
}

// Browsers, each signed in by itself at the provider, which asks for the password once: the owner's, and another user's.
const BROWSERS = [["ann", "by-api"], ["bob", "open"]].map(([user, workspace]) => ({ user, workspace, atProvider: {} }));
async function withBrowsers() {
  const people = [];
  for (const at of numbers(TRIES)) {
    const { user, workspace, atProvider } = BROWSERS[at % BROWSERS.length];
    const visitor = new Visitor({ ...atProvider });
    const page = await visitor.open(`${site}/`, user);
    if (page.status !== 200 || !page.text.includes(user)) throw new Error(`nobody is signed in: ${page.status} ${page.text.slice(0, 200)}`);
    for (const host of Object.keys(visitor.cookies)) if (host.startsWith("127.")) atProvider[host] = visitor.cookies[host];
    const host = opener.hostOf(app, workspace);
    await visitor.open(`http://${host}/`, user);
    const fields = { cookie: visitor.cookie(host), "sec-fetch-site": "same-origin", origin: `http://${host}` };
    const revoke = async (begin) => {
      begin();
      const answer = await visitor.visit(`${site}/.gateway/sign-out`, { method: "POST", headers: { origin: site, "sec-fetch-site": "same-origin" } });
      if (answer.status >= 400) throw new Error(`sign-out: ${answer.status}`);
    };
    people.push({ cause: "sign-out", kinds: WITH_COOKIE, workspace, revoke, fields });
  }
  return people;
}

// Agents, with a workspace each.
async function withAgents(name) {
  const people = [];
  await each(numbers(3 * TRIES), async (at) => {
    const token = await tokenFor("--workspace", `a${name}-${at}`, "--owner", "ann");
    const tokenFile = join(out, "tokens", token.id);
    writeFileSync(tokenFile, `${token.token}\n`, { mode: 0o600 });
    people.push({ cause: "token", kinds: [AGENT], tokenFile, revoke: (begin) => (begin(), revokeToken(at, token)), byCommand: isByCommand(at) });
  });
  return people;
}

// An agent's program: it ends when its session is taken away for good.
function startAgent({ tokenFile }) {
  const made = { told: "" };
  made.up = new Promise((resolve, reject) => Object.assign(made, { hear: resolve, fail: reject }));
  made.child = spawn(agent, ["run", "--gateway", `http://127.0.0.1:${agents}`, "--token-file", tokenFile], { env: { PATH: process.env.PATH, NO_COLOR: "1" } });
  made.child.stderr.on("data", (text) => {
    made.told = `${made.told}${text}`.slice(-2000);
    if (/connected/.test(text)) made.hear();
  });
  made.over = new Promise((resolve) => made.child.on("close", (status) => {
    made.told += ` (status ${status})`;
    made.fail(new Error(made.told));
    resolve((made.endedAt = now()));
  }));
  return made;
}

// --- measuring --------------------------------------------------------------------------------------------------------------

// Opens everybody's streams, and waits until something comes through each.
async function open(people) {
  const opened = [];
  const failures = [];
  await each(people, async (who) => {
    for (const kind of who.kinds) {
      const stream = kind === AGENT ? startAgent(who) : opener[kind](who);
      opened.push({ kind, who, stream });
      const tooLong = sleep(20_000).then(() => Promise.reject(new Error("nothing comes through it")));
      tooLong.catch(() => {});
      await Promise.race([stream.up, tooLong]).catch((error) => failures.push(`${kind}, ${who.cause}: ${error.message}`));
    }
  });
  return { opened, failures };
}

await startApps(Number(app), Number(tcp));
await api("PUT", "/workspaces/open/shares", { shares: PORTS.map((port) => ({ port, audience: "signed-in" })) });
// One who keeps access: what is cut has to be cut for its own sake.
const kept = await open([person("none", "by-api", await tokenFor("--user", "ann"))]);
check("somebody keeps access to streams of all kinds", kept.failures.length === 0, kept.failures.join(" | "));
const cut = [];
for (const round of numbers(Number(rounds))) {
  const people = (await Promise.all([withShares(round), withTokens(round), withBrowsers(), withAgents(round)])).flat();
  const { opened, failures } = await open(people);
  check(`${opened.length} streams of ${people.length} people and agents are open at the same time`, failures.length === 0, failures.slice(0, 5).join(" | "));
  await Promise.all(people.map(async (who) => {
    await sleep(Math.random() * SPREAD_MS);
    // From before a request: what it takes counts too. A command has revoked nothing before it has ended, and a loaded machine starts
    // its process when it likes.
    await who.revoke(() => (who.beganAt = who.revokedAt = now())).catch((error) => failures.push(`${who.cause}: ${error.message}`));
    if (who.byCommand) who.revokedAt = now();
  }));
  check("and all of it is taken away", failures.length === 0, failures.slice(0, 5).join(" | "));
  await Promise.race([Promise.all(opened.map(({ stream }) => stream.over)), sleep(10_000)]);
  cut.push(...opened);
}

// --- what came of it --------------------------------------------------------------------------------------------------------

const percentile = (list, part) => list[Math.min(list.length - 1, Math.ceil(list.length * part) - 1)] ?? NaN;
const seconds = (ms) => (ms === undefined || Number.isNaN(ms) ? "-" : (ms / 1000).toFixed(2));
const CAUSES = ["share", "token", "user", "sign-out"];
const rows = [["", "tries", "p50", "p100", ...CAUSES.map((cause) => `p100 ${cause}`)]];
for (const kind of [...WITH_TOKEN, AGENT]) {
  const of = cut.filter((one) => one.kind === kind);
  const took = (list) => list.map(({ stream, who }) => Math.max(0, (stream.endedAt ?? Infinity) - who.revokedAt)).sort((a, b) => a - b);
  const all = took(of);
  const longest = (cause) => percentile(took(of.filter(({ who }) => who.cause === cause)), 1);
  rows.push([kind, String(all.length), seconds(percentile(all, 0.5)), seconds(percentile(all, 1)), ...CAUSES.map((cause) => seconds(longest(cause)))]);
  const early = of.filter(({ stream, who }) => stream.endedAt < who.beganAt).length;
  check(`${kind}: each of ${all.length} is cut within 5 s (p50 ${seconds(percentile(all, 0.5))} s, p100 ${seconds(percentile(all, 1))} s)`, all.length > 0 && early === 0 && percentile(all, 1) < LIMIT_MS, `${early} ended by themselves`);
}
const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
const line = (row) => row.map((text, column) => (column === 0 ? text.padEnd(widths[0]) : text.padStart(widths[column]))).join("  ").trimEnd();
writeFileSync(join(out, "table.txt"), `seconds from the revocation to the cut of both ends\n${rows.map(line).join("\n")}\n`);

// Why, as far as there is a place to say it.
const REASONS = /(sign_in_required|no_such_host|port_not_allowed)/;
const WORDS = {
  "WebSocket over HTTP/1.1": (told) => told.startsWith("1008 ") && REASONS.test(told),
  "WebSocket over HTTP/2": (told) => told.startsWith("1008 ") && REASONS.test(told),
  "event stream": (told) => told === "the body breaks off",
  download: (told) => told === "the body breaks off",
  upload: (told) => /^(401|403|404) /.test(told) && REASONS.test(told),
  "raw TCP (gateway forward)": (told) => /has ended \(/.test(told) && REASONS.test(told),
  [AGENT]: (told) => /revoked/.test(told) && told.endsWith("(status 1)"),
};
for (const [kind, isTold] of Object.entries(WORDS)) {
  const wrong = cut.filter((one) => one.kind === kind && !isTold(one.stream.told));
  check(`${kind}: its end is told as what it is`, wrong.length === 0, `${wrong.length} times, such as ${wrong[0]?.stream.told}`);
}
const since = now();
const goOn = () => kept.opened.every(({ stream }) => stream.endedAt === undefined && stream.heard > since);
await until("the streams of whoever kept access go on", 5, goOn).catch(() => {});
check("the streams of whoever kept access go on", goOn(), kept.opened.map(({ kind, stream }) => `${kind} ${stream.told}`).join(", "));

opener.close();
for (const { stream } of cut) stream.child?.kill();
end();
process.exit();
