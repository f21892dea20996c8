// Compares what the Autobahn testsuite saw of an app with what it saw of it through the tunnel. Run by websocket.sh.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { check, end, options } from "../lib/checks.mjs";

const { direct, http1, http2, least } = options();

// Cases about what a server may do either way while the client is closing: a race by itself, which no two runs have to end alike.
const EITHER_WAY = ["7.1.6"];

function read(folder) {
  const [index, answers] = ["index.json", "answers.json"].map((name) => join(folder, name));
  if (!existsSync(index) || !existsSync(answers)) return {};
  const [cases] = Object.values(JSON.parse(readFileSync(index, "utf8")));
  const bytes = JSON.parse(readFileSync(answers, "utf8"));
  const report = ({ reportfile }) => JSON.parse(readFileSync(join(folder, reportfile), "utf8"));
  return Object.fromEntries(Object.entries(cases).map(([id, found]) => [id, { ...report(found), bytes: bytes[id] }]));
}

// What came: each byte, what the testsuite makes of them, and how the connection ended.
function seen({ behavior, behaviorClose, received, remoteCloseCode, remoteCloseReason, rxFrameStats, wasClean, droppedByMe, failedByMe, bytes }) {
  return JSON.stringify({ behavior, behaviorClose, received, remoteCloseCode, remoteCloseReason, rxFrameStats, wasClean, droppedByMe, failedByMe, bytes });
}

const app = read(direct);
const ids = Object.keys(app);
check(`the app was asked ${ids.length} cases`, ids.length >= Number(least), `at least ${least}`);
const failed = ids.filter((id) => !["OK", "NON-STRICT", "INFORMATIONAL"].includes(app[id].behavior));
check("the app passes them", failed.length === 0, failed.join(" "));
for (const [text, folder] of [["HTTP/1.1", http1], ["HTTP/2", http2]]) {
  const far = read(folder);
  const missing = ids.filter((id) => !(id in far));
  check(`all cases are there through the tunnel over ${text}`, ids.length > 0 && missing.length === 0, missing.slice(0, 20).join(" "));
  const bad = ids.filter((id) => far[id] && !["OK", "NON-STRICT", "INFORMATIONAL"].includes(far[id].behavior));
  check(`and pass over ${text}`, bad.length === 0, bad.slice(0, 20).join(" "));
  const other = ids.filter((id) => far[id] && !EITHER_WAY.includes(id) && seen(far[id]) !== seen(app[id]));
  check(`each answer over ${text} is the app's own, byte for byte`, other.length === 0, other.slice(0, 20).join(" "));
  for (const id of other) console.log(`${text} ${id}\n  app ${seen(app[id])}\n  far ${seen(far[id])}`);
}
end();
