// Says something over a WebSocket every 20 ms until a file exists, and prints how long the echo took.
//   node ws_latency.mjs --connect 127.0.0.1:8080 --host 3000-demo.localhost:8080 --until-file F [--bound-ms 100]
// The user's token is read from REAL_USER_TOKEN.

import { existsSync } from "node:fs";
import { WebSocket } from "ws";
import { check, end, options } from "../lib/checks.mjs";

const { connect, host, "until-file": untilFile, "bound-ms": bound = 100 } = options();
const headers = { host, "gateway-authorization": `Bearer ${process.env.REAL_USER_TOKEN}` };
const socket = new WebSocket(`ws://${connect}/`, { headers, perMessageDeflate: false });
const took = [];
const broken = new Promise((resolve) => {
  socket.on("close", (code) => resolve(`closed with ${code}`));
  socket.on("error", (error) => resolve(error.message));
});
const answer = () => new Promise((resolve) => socket.once("message", resolve));

await Promise.race([new Promise((resolve) => socket.once("open", resolve)), broken]);
let ended;
while (!existsSync(untilFile) && !ended) {
  const began = performance.now();
  socket.send("x".repeat(64));
  ended = await Promise.race([answer().then(() => undefined), broken]);
  took.push(performance.now() - began);
  await new Promise((resolve) => setTimeout(resolve, 20));
}
took.sort((one, other) => one - other);
const at = (share) => took[Math.min(took.length - 1, Math.round(share * (took.length - 1)))]?.toFixed(1);
console.log(`note WebSocket echo meanwhile, ${took.length} times: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms, max ${at(1)} ms`);
check("the WebSocket lives through all of it", !ended, ended);
check(`the p99 of its echo is under ${bound} ms`, Number(at(0.99)) < Number(bound), `${at(0.99)} ms`);
socket.close();
end();
