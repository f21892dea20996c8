// An app whose page does by itself everything that pages do: it polls, follows events, and has a WebSocket on which the app talks and
// pings. For the suite `idle`.
//   node idle.mjs PORT

import { createServer } from "node:http";
import { WebSocketServer } from "ws";

const PAGE = `<!doctype html><title>App</title><button id="say">Say</button><p id="polled">0</p><script>
let polled = 0;
setInterval(async () => { await fetch("/poll"); document.getElementById("polled").textContent = ++polled; }, 200);
new EventSource("/events");
const socket = new WebSocket(location.href.replace(/^http/, "ws"));
document.getElementById("say").onclick = () => socket.send("hello");
</script>`;

const server = createServer((request, response) => {
  if (request.url === "/events") {
    response.writeHead(200, { "content-type": "text/event-stream" });
    const timer = setInterval(() => response.write("data: x\n\n"), 200);
    response.on("close", () => clearInterval(timer));
  } else if (request.url === "/poll") {
    response.end("polled\n");
  } else {
    response.writeHead(200, { "content-type": "text/html" });
    response.end(PAGE);
  }
});

new WebSocketServer({ server }).on("connection", (socket) => {
  const timer = setInterval(() => (socket.ping(), socket.send("x".repeat(500))), 200);
  socket.on("close", () => clearInterval(timer));
});

server.listen(Number(process.argv[2]), "127.0.0.1");
