// Keeps many WebSockets open until a file exists: each sends a numbered message a second and wants it back, in order and once. Prints
// what came of them as checks.
//   node steady_sockets.mjs --connect 127.0.0.1:8080 --hosts 3000-one.localhost:8080,… --count 1000 --ready-file R --until-file F
// With `--again 1001`, those that are closed with that code are opened again, as pages do, and counted; so are messages that they took along.
// The user's token is read from REAL_USER_TOKEN. The file R is made when all are open.

import { existsSync, writeFileSync } from "node:fs";
import { WebSocket } from "ws";
import { check, end, options } from "../lib/checks.mjs";

const INTERVAL_MS = 1000;

const { connect, hosts, count = "100", "ready-file": readyFile, "until-file": untilFile, again } = options();
const all = hosts.split(",");
const total = Number(count);
const closed = new Map();
let opened = 0;
let sent = 0;
let returned = 0;
let wrong = 0;
let slowest = 0;
let reopened = 0;
let taken = 0;
let slowestOpen = 0;
let lastClose = "";

class Socket {
  constructor(number) {
    this.host = all[number % all.length];
    this.open();
  }

  open() {
    const headers = { host: this.host, "gateway-authorization": `Bearer ${process.env.REAL_USER_TOKEN}` };
    const began = performance.now();
    const isFirst = this.socket === undefined;
    this.socket = new WebSocket(`ws://${connect}/`, { headers, perMessageDeflate: false });
    this.next = 0;
    this.under = new Map();
    this.expected = 0;
    this.socket.on("open", () => {
      if (isFirst) opened += 1;
      else slowestOpen = Math.max(slowestOpen, performance.now() - began);
    });
    this.socket.on("message", (data) => this.hear(data.toString()));
    this.socket.on("error", (error) => this.note(error.message));
    this.socket.on("close", (code, reason) => this.close(code, reason));
  }

  close(code, reason) {
    if (String(code) !== again || this.isLeaving) return this.note(`${code} ${reason}`);
    reopened += 1;
    lastClose = `${code} ${reason}`;
    taken += this.under.size;
    this.open();
  }

  note(why) {
    if (!this.isLeaving && !this.isNoted) closed.set(why, (closed.get(why) ?? 0) + 1);
    this.isNoted = true;
  }

  say() {
    if (this.socket.readyState !== WebSocket.OPEN) return;
    this.under.set(this.next, performance.now());
    this.socket.send(`message ${this.next}`);
    this.next += 1;
    sent += 1;
  }

  hear(text) {
    if (text !== `message ${this.expected}`) wrong += 1;
    const began = this.under.get(this.expected);
    this.under.delete(this.expected);
    this.expected += 1;
    returned += 1;
    slowest = Math.max(slowest, performance.now() - began);
  }

  leave() {
    this.isLeaving = true;
    this.socket.close();
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const sockets = [];
for (let number = 0; number < total; number += 1) {
  sockets.push(new Socket(number));
  if (number % 50 === 49) await sleep(50);
}
for (let waited = 0; opened < total && waited < 300; waited += 1) await sleep(100);
check(`${total} WebSockets are open`, opened === total, `${opened}, ${[...closed.keys()].join(", ")}`);
writeFileSync(readyFile, "");
const timers = sockets.map((one, number) => setTimeout(() => (one.timer = setInterval(() => one.say(), INTERVAL_MS)), (number * INTERVAL_MS) / total));
while (!existsSync(untilFile)) await sleep(50);
timers.forEach(clearTimeout);
sockets.forEach((one) => clearInterval(one.timer));
for (let waited = 0; returned + taken < sent && waited < 100; waited += 1) await sleep(100);
const why = [...closed].map(([reason, times]) => `${times} × ${reason}`).join(", ");
const otherwise = again ? `, but for ${reopened} closed with ${again} and opened again` : "";
check(`none of ${total} WebSockets was closed${otherwise}`, closed.size === 0, why);
check(
  `${sent - taken} messages came back, each once and in order`,
  sent > 0 && returned + taken === sent && wrong === 0,
  `${returned} of ${sent} came, ${wrong} wrong`,
);
console.log(`slowest: ${Math.round(slowest)} ms`);
if (again) console.log(`closed: ${reopened} (${lastClose}), open again within ${Math.round(slowestOpen)} ms, ${taken} messages without an answer`);
sockets.forEach((one) => one.leave());
await sleep(500);
end();
process.exit();
