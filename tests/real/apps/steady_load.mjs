// Sends so many requests a second, answered or not, until a file exists, and prints what came of them as checks: how many were refused,
// and the slowest. All of them are sent by people whom the gateway knows.
//   node steady_load.mjs --connect 127.0.0.1:8080 --host 3000-demo.localhost:8080 --rate 100 --until-file F
// With several hosts, between commas, each is asked in turn. `--bearable 5` lets so many be refused, of which it says so; `--want 503`
// is for requests that all have to be refused so. `--ready-file R` is made with the first answer.
// Credentials are the lines of REAL_CREDENTIALS: `token VALUE` or `cookie VALUE`, in turn.

import { existsSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { check, end, options } from "../lib/checks.mjs";

const { connect, host, rate = "100", "until-file": untilFile, want = "200", bearable = "0", "ready-file": readyFile } = options();
const hosts = host.split(",");
const [address, port] = connect.split(":");
const credentials = process.env.REAL_CREDENTIALS.trim().split("\n").map((line) => {
  const [kind, ...value] = line.split(" ");
  return kind === "token" ? { "gateway-authorization": `Bearer ${value.join(" ")}` } : { cookie: value.join(" ") };
});
// The gateway closes a connection that has waited for a request for 30 s, and a request may be under way in that moment (RFC 9112, 9.3):
// connections that one slow second left over are given up here before that.
const agent = new Agent({ keepAlive: true, maxSockets: 256, timeout: 20_000 });
const answers = new Map();
let sent = 0;
let under = 0;
let slowest = 0;

const note = (answer, began) => {
  if (readyFile && answers.size === 0) writeFileSync(readyFile, "");
  answers.set(answer, (answers.get(answer) ?? 0) + 1);
  slowest = Math.max(slowest, performance.now() - began);
  under -= 1;
};

function send() {
  const began = performance.now();
  const headers = { host: hosts[sent % hosts.length], ...credentials[sent % credentials.length] };
  sent += 1;
  under += 1;
  const asked = request({ host: address, port, path: "/", headers, agent }, (response) => {
    response.resume();
    response.on("end", () => note(`${response.statusCode} ${response.headers["gateway-error"] ?? ""}`.trim(), began));
  });
  asked.on("error", (error) => note(error.code ?? error.message, began));
  asked.end();
}

const start = performance.now();
while (!existsSync(untilFile)) {
  const due = ((performance.now() - start) / 1000) * Number(rate);
  while (sent < due) send();
  await new Promise((resolve) => setTimeout(resolve, 5));
}
for (let waited = 0; under > 0 && waited < 300; waited += 1) await new Promise((resolve) => setTimeout(resolve, 100));
const all = [...answers].map(([answer, count]) => `${count} × ${answer}`).join(", ");
const seconds = Math.round((performance.now() - start) / 1000);
const others = [...answers].reduce((sum, [answer, count]) => (answer.split(" ")[0] === want ? sum : sum + count), 0);
const allowed = bearable === "0" ? "none refused" : `at most ${bearable} refused`;
const what = want === "200" ? allowed : `each answered ${want}`;
check(`${sent} requests in ${seconds} s, ${what}: ${all}`, sent > 0 && others <= Number(bearable), `slowest ${Math.round(slowest)} ms`);
console.log(`slowest: ${Math.round(slowest)} ms`);
agent.destroy();
end();
