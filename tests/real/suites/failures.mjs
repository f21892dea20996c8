// Provokes each failure by curl and by Chromium, and compares what page, header, problem document, log line, metric and explanation say.

import { execFile } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, ok, fail, open, options, signIn, signInAs, until } from "../lib/browser.mjs";
import { Visitor } from "../lib/visitor.mjs";

const given = options();
const { out, link, public: users, agents, admin, workspace } = given;
const token = process.env.REAL_USER_TOKEN;
// The gateways: of most failures the first, and others with TLS and with a provider, whose operator asks for explanations.
const gateways = { gateway: { users, admin, token }, ...JSON.parse(given.beside) };
for (const name of ["secure", "people"]) gateways[name].token = readFileSync(join(out, `${name}.operator`), "utf8").trim();
const secure = `https://localhost:${gateways.secure.users}`;
const people = `http://localhost:${gateways.people.users}`;
const pids = JSON.parse(process.env.REAL_PIDS);
const host = (port, name = workspace) => `http://${port}-${name}.localhost:${users}`;

// Signs in as far as the provider, and comes back with a code that it never gave out.
const callback = (location) => {
  const asked = new URL(location).searchParams;
  return `${people}/.gateway/oidc/callback?${new URLSearchParams({ code: "never-given", state: asked.get("state"), iss: new URL(location).origin })}`;
};
const wrongCode = {
  byCurl: async () => {
    const visitor = new Visitor();
    return visitor.visit(callback((await visitor.visit(`${people}/.gateway/sign-in`)).headers.location));
  },
  byBrowser: async (tab) => {
    const leads = tab.waitForRequest((asked) => asked.url().includes("state="));
    await tab.goto(`${people}/.gateway/sign-in`).catch(() => {}); // The provider may be gone.
    // A tab of its own: this one may still show that.
    const second = await tab.context().newPage();
    return second.goto(callback((await leads).url()));
  },
};
const notAdmitted = {
  byCurl: () => new Visitor().open(`${people}/.gateway/sign-in`, "bob"),
  byBrowser: async (tab) => {
    await tab.goto(`${people}/.gateway/sign-in`);
    const answered = tab.waitForResponse((answer) => answer.url().includes("/.gateway/oidc/callback"));
    await signInAs(tab, "bob");
    return answered;
  },
};

// The rows. `fields` are sent by curl and by a page, `during` happens once the request is under way, `before` before it, `byCurl` and
// `byBrowser` provoke what takes more than one request, and `alone` says why Chromium cannot.
const bearer = ["-H", `gateway-authorization: Bearer ${token}`];
const lose = (name) => () => process.kill(pids[name], "SIGKILL");
const rows = [
  { code: "no_such_host", reason: "no_such_host", side: "policy", at: `${host(given.echo, "none-such")}/` },
  { code: "no_such_host", reason: "no_default_port", side: "agent", at: `http://${workspace}.localhost:${users}/`, skip: "its list of ports is the answer to its owner" },
  { code: "sign_in_required", reason: "sign_in_required", side: "policy", at: `${host(given.echo)}/`, anonymous: true, alone: "a visit is led to the sign-in" },
  { code: "port_not_allowed", reason: "port_not_allowed", side: "policy", at: `${host(given.closing, "narrow")}/` },
  { code: "workspace_stopped", reason: "workspace_stopped", side: "agent", at: `${host(80, "stopped")}/` },
  { code: "agent_absent", reason: "agent_absent", side: "agent", at: `${host(80, "away")}/` },
  { code: "port_closed", reason: "port_closed", side: "app", at: `${host(1)}/` },
  { code: "port_closed", reason: "app_closed", side: "app", at: `${host(given.closing)}/` },
  { code: "port_closed", reason: "app_answer_invalid", side: "app", at: `${host(given.nonsense)}/` },
  { code: "port_closed", reason: "app_speaks_tls", side: "app", at: `${host(given.tls)}/` },
  { code: "port_closed", reason: "app_speaks_no_tls", side: "app", at: `${host(given.echo, "mistaken")}/` },
  { code: "open_timeout", reason: "open_timeout", side: "way", at: `${host(given.full)}/` },
  { code: "response_timeout", reason: "timeouts.response_header", side: "app", at: `${host(given.silent)}/` },
  { code: "overloaded", reason: "limits.requests_per_workspace", side: "limit", at: `${host(given.echo, "busy")}/` },
  { code: "bad_request", reason: "underscore_field", side: "client", at: `${host(given.echo)}/`, fields: { x_forwarded_for: "1.2.3.4" } },
  { code: "bad_request", reason: "uri_too_long", side: "client", at: `${host(given.echo)}/${"a".repeat(33 * 1024)}` },
  { code: "header_too_large", reason: "header_too_large", side: "client", at: `${host(given.echo)}/`, fields: { "x-long": "a".repeat(70 * 1024) } },
  {
    code: "session_lost", reason: "session_lost", side: "way", at: `${host(given.echo, "lost-1")}/slow?ms=8000`, during: lose("lost-1"),
    inBrowser: { at: `${host(given.echo, "lost-2")}/slow?ms=8000`, during: lose("lost-2") },
  },
  { code: "sign_in_refused", reason: "not_admitted", side: "policy", gateway: "people", ...notAdmitted },
  { code: "sign_in_failed", reason: "provider_failed", side: "replica", gateway: "people", ...wrongCode },
  { code: "provider_unavailable", reason: "provider_unavailable", side: "replica", gateway: "people", before: () => process.kill(pids.provider, "SIGKILL"), ...wrongCode },
  {
    code: "misdirected", reason: "misdirected", side: "client", gateway: "secure", alone: "asks again on a connection of its own",
    byCurl: () => curl([`${secure}/`, "-k", "-H", `host: 80-away.localhost:${gateways.secure.users}`]).then(parse),
  },
  { code: "draining", reason: "draining", side: "replica", at: `${host(given.echo)}/`, before: () => process.kill(pids.gateway, "SIGTERM") },
];

const curl = (args) => new Promise((resolve, reject) => {
  execFile("curl", ["-sS", "-i", "--max-time", "20", ...args], { maxBuffer: 1 << 22 }, (error, stdout) => (error ? reject(error) : resolve(stdout)));
});
function parse(text) {
  const [head, ...rest] = text.split("\r\n\r\n");
  const [start, ...lines] = head.split("\r\n");
  const headers = Object.fromEntries(lines.map((line) => line.split(/: ?(.*)/s, 2)).map(([name, value]) => [name.toLowerCase(), value]));
  return { status: Number(start.split(" ")[1]), headers, body: rest.join("\r\n\r\n") };
}
async function counts({ gateway = "gateway" }) {
  const text = await (await fetch(`http://127.0.0.1:${gateways[gateway].admin}/metrics`)).text();
  const lines = text.split("\n").filter((line) => line.startsWith("gateway_failures_total{"));
  return new Map(lines.map((line) => [line.slice(0, line.lastIndexOf(" ")), Number(line.slice(line.lastIndexOf(" ")))]));
}
const series = ({ code, reason, side }) => `gateway_failures_total{code="${code}",reason="${reason}",side="${side}"}`;
const line = (trace, { gateway = "gateway" }) => readFileSync(join(out, `${gateway}.log`), "utf8").split("\n").find((text) => text.includes(trace));

// Checks what is said of one failure; returns what differs.
async function differences(row, answer, before) {
  const found = [];
  const same = (what, is, expected) => { if (is !== expected) found.push(`${what}: ${is}, not ${expected}`); };
  const { headers } = answer;
  same("header gateway-error", headers["gateway-error"], row.code);
  same("header gateway-reason", headers["gateway-reason"], row.reason);
  same("header gateway-side", headers["gateway-side"], row.side);
  const trace = headers["gateway-trace"];
  if (!trace) return [...found, "no trace"];
  if (headers["content-type"]?.startsWith("application/problem+json")) {
    const problem = JSON.parse(answer.body);
    same("code of the document", problem.code, row.code);
    same("side of the document", problem.side, row.side);
    same("reason of the document", problem.reason ?? problem.limit ?? problem.code, row.reason);
    same("trace of the document", problem.trace_id, trace);
  } else {
    for (const [name, value] of [["Code", row.code], ["Reason", row.reason], ["Side", row.side], ["Trace", trace]]) {
      if (!answer.body.includes(`<dt>${name}</dt><dd>${value}</dd>`)) found.push(`the page has no ${name} ${value}`);
    }
  }
  const text = await until("the line of the log", 10, () => line(trace, row)).catch(() => "");
  for (const [name, value] of [["code", row.code], ["reason", row.reason], ["side", row.side]]) {
    if (!text.includes(`${name}="${value}"`)) found.push(`the log has no ${name} ${value}: ${text.slice(0, 300)}`);
  }
  same("more in the metric", (await counts(row)).get(series(row)) - (before.get(series(row)) ?? 0) >= 1, true);
  // A gateway that drains answers no other request.
  if (row.code !== "draining") {
    const { users: port, token: operator } = gateways[row.gateway ?? "gateway"];
    const scheme = row.gateway === "secure" ? "https" : "http";
    const explained = parse(await curl([`${scheme}://localhost:${port}/api/v1/failures/${trace}`, "-k", "-H", `authorization: Bearer ${operator}`]));
    if (explained.status !== 200) return [...found, `explain: status ${explained.status}`];
    const said = JSON.parse(explained.body);
    same("code of the explanation", said.code, row.code);
    same("side of the explanation", said.side, row.side);
    same("reason of the explanation", said.detail ?? said.code, row.reason);
  }
  return found;
}

const { browser, context } = await open(out);
const page = await context.newPage();
await signIn(page, link);
// Signs in at the host that pages send requests with fields of their own from.
await page.goto(`${host(given.echo)}/`);

const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
async function byCurl(row) {
  if (row.byCurl) {
    const { text, ...answer } = await row.byCurl();
    return { body: text, ...answer };
  }
  const fields = Object.entries(row.fields ?? {}).flatMap(([name, value]) => ["-H", `${name}: ${value}`]);
  const asked = curl([row.at, ...(row.anonymous ? [] : bearer), ...fields]);
  if (row.during) await wait(1000).then(row.during);
  return parse(await asked);
}
async function byBrowser(row) {
  const { at, during } = { at: row.at, during: row.during, ...row.inBrowser };
  if (row.fields) {
    return page.evaluate(async (fields) => {
      const answer = await fetch("/", { headers: fields });
      return { status: answer.status, headers: Object.fromEntries(answer.headers), body: await answer.text() };
    }, row.fields);
  }
  // The provider knows again who was there.
  const tab = await (row.byBrowser ? await browser.newContext() : context).newPage();
  const visited = row.byBrowser ? row.byBrowser(tab) : tab.goto(at, { waitUntil: "domcontentloaded", timeout: 30_000 });
  if (during) await wait(3000).then(during);
  const response = await visited;
  const answer = { status: response.status(), headers: response.headers(), body: await response.text() };
  await tab.close();
  return answer;
}

// Those of the API, which programs meet: header, document and log agree.
const asBob = ["-H", `authorization: Bearer ${readFileSync(join(out, "bob.user"), "utf8").trim()}`];
const asDev = ["-H", `authorization: Bearer ${token}`];
const json = (body) => ["-H", "content-type: application/json", "-d", typeof body === "string" ? body : JSON.stringify(body)];
const device = await curl([`http://localhost:${users}/api/v1/device`, ...json({})]).then(parse);
const pending = json({ device_code: JSON.parse(device.body).device_code });
const ofApi = [
  { code: "sign_in_required", status: 401, path: "/workspaces", with: [] },
  { code: "not_found", status: 404, path: "/workspaces/none-such", with: asDev },
  { code: "forbidden", status: 403, path: `/workspaces/${workspace}`, with: [...asBob, "-X", "DELETE"] },
  { code: "invalid", status: 422, path: "/workspaces", with: [...asDev, ...json({ name: "-" })] },
  {
    code: "conflict", status: 409, path: "/workspaces",
    with: [...asDev, ...json({ name: "stopped", executor: "kubernetes", agent: "unique", devfile: readFileSync(join(out, "devfile.yaml"), "utf8") })],
  },
  { code: "too_large", status: 413, path: "/tokens", with: [...asDev, ...json({ kind: "user", note: "a".repeat(70_000) })] },
  { code: "authorization_pending", status: 400, path: "/device/token", with: pending },
  { code: "slow_down", status: 400, path: "/device/token", with: pending },
];
for (const row of ofApi) {
  const answer = await curl([`http://localhost:${users}/api/v1${row.path}`, ...row.with]).then(parse);
  const said = JSON.parse(answer.body);
  const is = [answer.status, answer.headers["gateway-error"], said.code ?? said.error];
  check(`${row.code} of the API: header and document agree`, is.join() === [row.status, row.code, row.code].join(), `${is} ${answer.body.slice(0, 300)}`);
  const trace = answer.headers["gateway-trace"];
  check(`${row.code} of the API: its trace is in the document`, trace !== undefined && (said.trace_id ?? trace) === trace, answer.body.slice(0, 300));
}

const table = ["| code | reason | side | curl | Chromium |", "| --- | --- | --- | --- | --- |"];
for (const row of rows) {
  if (row.skip) {
    table.push(`| ${row.code} | ${row.reason} | ${row.side} | ${row.skip} | |`);
    continue;
  }
  row.before?.();
  if (row.before) await wait(500);
  const cells = [];
  for (const [name, provoke] of [["curl", byCurl], ["Chromium", byBrowser]]) {
    if (name === "Chromium" && row.alone) {
      cells.push(row.alone);
      continue;
    }
    const title = `${row.code} (${row.reason}) by ${name}: page or document, header, log, metric and explanation agree`;
    try {
      const before = await counts(row);
      const answer = await provoke(row);
      const found = await differences(row, answer, before);
      if (found.length === 0) ok(title);
      else fail(`${title}: ${found.join("; ")}`);
      cells.push(found.length === 0 ? `${answer.status}, all agree` : found.join("; "));
    } catch (error) {
      fail(`${title}: ${error.message}`);
      cells.push(error.message.split("\n")[0]);
    }
  }
  table.push(`| ${row.code} | ${row.reason} | ${row.side} | ${cells.join(" | ")} |`);
}
// What is said before there is a request to the users' listener.
const plain = await curl([`http://localhost:${gateways.secure.users}/`]).then(parse);
check("plain text at a listener with TLS is told so", plain.status === 400 && plain.headers["gateway-error"] === "tls_required", JSON.stringify(plain));
const lost = await curl([`http://localhost:${agents}/`, "-H", "accept: text/html"]).then(parse);
check("a user at the listener for agents is told so", lost.status === 404 && lost.headers["gateway-error"] === "wrong_listener", JSON.stringify(lost));
writeFileSync(join(out, "failures.md"), `${table.join("\n")}\n`);
check("a table of them is written", existsSync(join(out, "failures.md")));
await browser.close();
end();
