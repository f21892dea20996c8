// Talks to a WebSocket echo and prints checks: messages both ways, then (with --idle SECONDS) silence, then messages again on
// the same connection. With --until-file F it exchanges a message each 100 ms until that file exists, and reports the longest wait.
//   node ws_client.mjs --connect 127.0.0.1:8080 --host 3000-demo.localhost:8080 [--idle 20] [--until-file F] [--text TEXT]
// The user's token is read from REAL_USER_TOKEN.

import { existsSync } from "node:fs";
import { WebSocket } from "ws";
import { check, end, options } from "../lib/checks.mjs";

const { connect, host, idle, text = "a WebSocket", "until-file": untilFile } = options();
const headers = { host };
if (process.env.REAL_USER_TOKEN) headers["gateway-authorization"] = `Bearer ${process.env.REAL_USER_TOKEN}`;
const socket = new WebSocket(`ws://${connect}/`, { headers, perMessageDeflate: false });

const waiting = [];
let ended = null;
const finish = (why) => {
  ended ??= why;
  for (const one of waiting.splice(0)) one.reject(new Error(ended));
};
socket.on("message", (data) => waiting.shift()?.resolve(data.toString()));
socket.on("error", (error) => finish(error.message));
socket.on("close", (code) => finish(`closed with ${code}`));
socket.on("unexpected-response", (_, response) => finish(`status ${response.statusCode}, ${response.headers["gateway-error"] ?? ""}`));

// Sends one message and waits for its echo.
function exchange(message, seconds = 10) {
  if (ended) return Promise.reject(new Error(ended));
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no echo in ${seconds} s`)), seconds * 1000);
    const settle = (action) => (value) => {
      clearTimeout(timer);
      action(value);
    };
    waiting.push({ resolve: settle(resolve), reject: settle(reject) });
    socket.send(message);
  });
}

// So many messages, one after the other; the reason if one is missing or different.
async function several(count, label) {
  try {
    for (let number = 0; number < count; number += 1) {
      const message = `${label} ${number} ${"x".repeat(number * 50)}`;
      if ((await exchange(message)) !== message) return `message ${number} came back different`;
    }
    return "";
  } catch (error) {
    return error.message;
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

await new Promise((resolve) => {
  const timer = setTimeout(resolve, 10_000);
  for (const what of ["open", "close", "error"]) {
    socket.on(what, () => {
      clearTimeout(timer); // or the process would live as long
      resolve();
    });
  }
});
let problem = await several(50, "first");
check(`${text} carries messages both ways`, problem === "", problem);
if (untilFile && problem === "") {
  let longest = 0;
  let number = 0;
  while (problem === "" && !existsSync(untilFile)) {
    const began = Date.now();
    const message = `steady ${(number += 1)}`;
    problem = await exchange(message, 30).then((got) => (got === message ? "" : "a message came back different"), (error) => error.message);
    longest = Math.max(longest, Date.now() - began);
    await sleep(100);
  }
  console.log(`${text}: ${number} messages, longest wait ${longest} ms`);
  check(`${text} lives on, no message lost`, problem === "", `after ${number} messages: ${problem}`);
}
if (idle && problem === "") {
  await sleep(Number(idle) * 1000);
  problem = await several(10, "after the silence");
  check(`${text} still carries messages after ${idle} s of silence`, problem === "", problem);
}
socket.terminate();
end();
