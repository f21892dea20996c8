// One terminal as this page sees it: a WebSocket at a time, over which nothing is lost or repeated however often it breaks. Bytes are
// numbered in both directions. The messages are those of `workspace-agent/src/terminal/message.rs`.

const SUBPROTOCOL = "terminal.gateway.v1";
const INPUT_BYTES = 4096; // of one message
const KEPT_BYTES = 4 << 20; // typed and not yet taken
const BLIND_BYTES = 16 << 10; // the same while there is no connection
const AHEAD_BYTES = 64 << 10; // sent and not yet taken: what the page has shown must not wait behind it
const SHOWN_BYTES = 16 << 10; // told at least so often
const SHOWN_MS = 150; // and at the latest after this
const SILENCE_MS = 25_000; // the agent says something every ten seconds
const WAIT_MS = [500, 15_000];

// Why a request through the gateway failed, in words.
const WORDS = {
  agent_absent: "The workspace's agent is not connected",
  workspace_stopped: "The workspace is stopped",
  sign_in_required: "You are signed out: reload the page to sign in",
  no_such_host: "You have no access to this workspace any more",
  port_not_allowed: "You have no access to this terminal any more",
  draining: "The gateway is being restarted",
  too_many_terminals: "There are too many terminals",
  job_not_held: "The job does not wait any more",
  another_job: "The job waits for another command now: look at that one first",
};

// Asks the agent what there is. Resolves to `{ state }`, or to `{ trouble }` in words.
export async function ask() {
  try {
    const answer = await fetch("state", { headers: { accept: "application/json" }, cache: "no-store" });
    if (answer.ok) return { state: await answer.json() };
    const code = answer.headers.get("gateway-error");
    return { trouble: WORDS[code] ?? `The terminal cannot be reached (${code ?? answer.status})` };
  } catch {
    return { trouble: "The gateway cannot be reached" };
  }
}

// A change of something other than a terminal's bytes. Resolves to the answer, or throws its words.
export async function change(method, path, body) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const code = answer.headers.get("gateway-error") ?? (await answer.json().catch(() => ({}))).error;
  throw new Error(WORDS[code] ?? code ?? answer.status);
}

export class Connection {
  // `on` has: write(bytes, done), reset(missed, done), size(columns, rows, leads), viewers(count), welcome(mayType), ended(status), job(state),
  // status(kind, words, seconds), gone(state), window() -> {cols, rows}.
  constructor(id, instance, on) {
    Object.assign(this, { id, instance, on, page: random(), at: null, shown: 0, told: 0, newsFrom: 0, leads: false });
    Object.assign(this, { typed: 0, kept: [], keptBytes: 0, unsent: 0, takenBytes: 0, socket: null, ready: false, failures: 0, over: false });
    this.connect();
  }

  // Whether this page answers what programs ask: it leads, and what it parses now is no repetition.
  answers() {
    return this.leads && this.shown >= this.newsFrom;
  }

  // Takes what was typed. Returns whether there was room to keep it.
  type(bytes) {
    const room = this.ready ? KEPT_BYTES : BLIND_BYTES;
    if (this.over || this.keptBytes + bytes.length > room) return false;
    for (let at = 0; at < bytes.length; at += INPUT_BYTES) {
      const piece = bytes.subarray(at, at + INPUT_BYTES);
      const entry = { offset: this.typed, piece };
      this.kept.push(entry);
      this.typed += piece.length;
      this.keptBytes += piece.length;
      this.unsent += 1;
    }
    this.sendTyped();
    return true;
  }

  resized(columns, rows) {
    if (this.ready) this.send(1, 4, (view) => (view.setUint16(1, columns), view.setUint16(3, rows)));
  }

  // Ends it for good.
  close() {
    this.over = true;
    clearTimeout(this.timer);
    this.drop();
  }

  // Tries at once what is waited for.
  hurry() {
    if (this.waits && !this.over) {
      clearTimeout(this.timer);
      this.connect();
    }
  }

  // --- coming and going ------------------------------------------------------------------------------------------------------

  async connect() {
    this.waits = false;
    this.on.status("connecting", this.at === null ? "Connecting …" : "Reconnecting …");
    // A WebSocket that fails does not say why; this does.
    const { state, trouble } = await ask();
    if (this.over || this.socket) return;
    if (!state) return this.wait(trouble);
    if (!state.terminals.some(({ id }) => id === this.id)) {
      this.over = true;
      return this.on.gone(state, state.instance !== this.instance);
    }
    const { cols, rows } = this.on.window() ?? {};
    const query = new URLSearchParams({ page: this.page });
    if (this.at !== null) query.set("from", this.at);
    if (cols && rows) (query.set("columns", cols), query.set("rows", rows));
    const url = new URL(`terminals/${this.id}/stream?${query}`, document.baseURI);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, SUBPROTOCOL);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onmessage = ({ data }) => socket === this.socket && this.hear(new DataView(data));
    socket.onclose = ({ code }) => socket === this.socket && this.lost(code);
    this.listen();
  }

  lost(code) {
    this.drop();
    if (this.over) return;
    if (code === 4000) return this.stop("This terminal was closed");
    if (code === 4002) return this.stop("This page and the terminal disagree about what was typed: reload the page");
    if (code === 4001) return this.stop("This terminal is shown by a newer connection");
    if (code === 4003) return this.stop("You may look, but not type");
    this.wait("The connection broke");
  }

  stop(words) {
    this.over = true;
    this.on.status("trouble", words);
  }

  // Lets go of a connection, whatever state it is in.
  drop() {
    clearTimeout(this.silence);
    clearTimeout(this.telling);
    this.ready = false;
    const { socket } = this;
    this.socket = null;
    socket?.close();
  }

  wait(words) {
    const most = Math.min(WAIT_MS[1], WAIT_MS[0] * 2 ** this.failures++);
    const ms = most * (0.5 + Math.random() / 2);
    this.waits = true;
    this.on.status("waiting", words, Math.ceil(ms / 1000));
    this.timer = setTimeout(() => this.connect(), ms);
  }

  // A path that is gone without a word is given up.
  listen() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.lost(0), SILENCE_MS);
  }

  // --- what the agent says ---------------------------------------------------------------------------------------------------

  hear(view) {
    this.listen();
    switch (view.getUint8(0)) {
      case 0: return this.welcome(view);
      case 1: return this.output(new Uint8Array(view.buffer, 1));
      case 2: return this.begin(number(view, 1));
      case 3: {
        this.leads = view.getUint8(5) === 1;
        return this.on.size(view.getUint16(1), view.getUint16(3), this.leads);
      }
      case 4: return this.on.viewers(view.getUint16(1));
      case 5: return this.taken(number(view, 1));
      case 6: {
        this.over = true;
        return this.on.ended(view.getUint8(1) === 1 ? view.getInt32(2) : null);
      }
      case 7: {
        const phase = ["running", "held", "ended"][view.getUint8(1)];
        const command = new TextDecoder().decode(new Uint8Array(view.buffer, 14));
        return this.on.job({ command, phase, exit_status: view.getInt32(2), until: number(view, 6) });
      }
    }
  }

  welcome(view) {
    const flags = view.getUint8(1);
    const [from, newsFrom, taken] = [2, 10, 18].map((at) => number(view, at));
    this.newsFrom = newsFrom;
    if (flags & 2) this.begin(from);
    Object.assign(this, { ready: true, failures: 0, told: from });
    this.on.welcome((flags & 1) === 1);
    this.on.status("connected", "Connected");
    this.release(taken);
    this.unsent = this.kept.length;
    this.sendTyped();
    const { cols, rows } = this.on.window() ?? {};
    if (cols && rows) this.resized(cols, rows);
    this.tell();
  }

  // What comes is not what the page has seen the beginning of. It says how much it will never see of what it has seen the rest of.
  begin(from) {
    const missed = this.at === null ? 0 : from - this.at;
    this.at = from;
    this.told = from;
    this.on.reset(missed, () => (this.shown = from));
  }

  output(bytes) {
    // In two pieces where the repetition ends: while the first is parsed this page answers nothing.
    const old = Math.max(0, Math.min(bytes.length, this.newsFrom - this.at));
    for (const piece of [bytes.subarray(0, old), bytes.subarray(old)]) {
      if (piece.length === 0) continue;
      this.at += piece.length;
      this.on.write(piece, () => {
        this.shown += piece.length;
        this.tell();
      });
    }
  }

  // Says how much was shown: the agent sends no more than some bytes ahead.
  tell() {
    if (!this.ready) return;
    clearTimeout(this.telling);
    if (this.shown - this.told >= SHOWN_BYTES) return this.tellNow();
    if (this.shown > this.told) this.telling = setTimeout(() => this.tellNow(), SHOWN_MS);
  }

  tellNow() {
    if (!this.ready) return;
    this.told = this.shown;
    this.send(2, 8, (view) => view.setBigUint64(1, BigInt(this.shown)));
  }

  taken(count) {
    this.release(count);
    this.sendTyped();
  }

  // Forgets what nobody will ask for again.
  release(count) {
    this.takenBytes = count;
    while (this.kept.length > 0 && this.kept[0].offset + this.kept[0].piece.length <= count) {
      this.keptBytes -= this.kept.shift().piece.length;
    }
  }

  // Sends what was typed and was not sent on this connection, no further ahead than may be.
  sendTyped() {
    while (this.ready && this.unsent > 0) {
      const entry = this.kept[this.kept.length - this.unsent];
      if (entry.offset + entry.piece.length > this.takenBytes + AHEAD_BYTES) return;
      this.unsent -= 1;
      this.sendInput(entry);
    }
  }

  sendInput({ offset, piece }) {
    this.send(0, 8 + piece.length, (view) => {
      view.setBigUint64(1, BigInt(offset));
      new Uint8Array(view.buffer, 9).set(piece);
    });
  }

  send(kind, length, fill) {
    const view = new DataView(new ArrayBuffer(1 + length));
    view.setUint8(0, kind);
    fill(view);
    this.socket.send(view);
  }
}

const number = (view, at) => Number(view.getBigUint64(at));

// 128 bits in hexadecimal.
function random() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
