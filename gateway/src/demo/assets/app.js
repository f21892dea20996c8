// The page of the sample app: four cards, each on its own. No framework, nothing from elsewhere.
"use strict";

(() => {
  const $ = (id) => document.getElementById(id);

  // Relative to the page, so that it also works where the app does not stand at the root of a host.
  const address = (path) => new URL(path, document.baseURI);

  const MIB = 1024 * 1024;

  /** Sets a state chip; an unchanged text is left alone so that screen readers do not repeat it. */
  function setState(chip, state, text) {
    if (chip.dataset.state !== state) chip.dataset.state = state;
    if (chip.textContent !== text) chip.textContent = text;
  }

  const show = (element, value) => {
    element.textContent = String(value);
  };

  /** Full jitter between a half and ten seconds; `failures` is how many attempts in a row came to nothing. */
  function backoff(failures) {
    const ceiling = Math.min(10_000, 1000 * 2 ** Math.min(failures, 10));
    return 500 + Math.random() * (ceiling - 500);
  }

  const milliseconds = (value) => (value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : value.toFixed(0));

  function duration(seconds) {
    const parts = [
      [Math.floor(seconds / 86_400), "d"],
      [Math.floor(seconds / 3600) % 24, "h"],
      [Math.floor(seconds / 60) % 60, "min"],
      [Math.floor(seconds) % 60, "s"],
    ];
    const first = parts.findIndex(([count]) => count > 0);
    if (first < 0) return "0 s";
    return parts.slice(first, first + 2).map(([count, unit]) => `${count} ${unit}`).join(" ");
  }

  function size(bytes) {
    if (bytes < 1024) return `${bytes} bytes`;
    if (bytes < MIB) return `${(bytes / 1024).toFixed(1)} KiB`;
    if (bytes < 1024 * MIB) return `${(bytes / MIB).toFixed(1)} MiB`;
    return `${(bytes / 1024 / MIB).toFixed(2)} GiB`;
  }

  /** What went wrong with an answer: the gateway's name for it if it has one. */
  function failure(status, gatewayError) {
    return gatewayError ? `the gateway answered ${status}, ${gatewayError}` : `the answer was ${status}`;
  }

  /* WebSocket echo */

  function startEcho() {
    const SAMPLES = 60;
    // A session survives a broken link for half a minute, and echoes then arrive late but whole. Only after that is
    // a silent socket given up.
    const GIVE_UP_MS = 45_000;
    const LATE_MS = 2500;

    const target = address("ws");
    target.protocol = target.protocol === "https:" ? "wss:" : "ws:";

    const trips = [];
    const waiting = new Map();
    let socket = null;
    let number = 0;
    let failures = 0;
    let opened = 0;
    let lost = 0;
    let retry = null;

    function connect() {
      retry = null;
      setState($("ws-state"), "wait", opened === 0 ? "Connecting" : "Reconnecting");
      const fresh = new WebSocket(target);
      socket = fresh;
      fresh.onopen = () => {
        opened += 1;
        show($("ws-reconnects"), opened - 1);
        setState($("ws-state"), "good", "Connected");
        send("");
      };
      fresh.onmessage = (event) => receive(event.data);
      fresh.onclose = (event) => ended(fresh, event.code);
    }

    function ended(which, code) {
      if (which !== socket) return;
      socket = null;
      lost += waiting.size;
      waiting.clear();
      show($("ws-lost"), lost);
      show($("ws-waiting"), 0);
      setState($("ws-state"), "bad", code === 1001 ? "The app went away, reconnecting" : "Disconnected, reconnecting");
      retry = setTimeout(connect, backoff(failures));
      failures += 1;
    }

    function send(text) {
      if (!socket || socket.readyState !== WebSocket.OPEN) return false;
      number += 1;
      const message = { number, sent_unix_ms: Date.now(), text };
      waiting.set(number, performance.now());
      socket.send(JSON.stringify(message));
      show($("ws-waiting"), waiting.size);
      return true;
    }

    function receive(data) {
      const now = performance.now();
      let message;
      try {
        message = JSON.parse(data);
      } catch {
        setState($("ws-state"), "bad", "The echo came back changed");
        return;
      }
      const sent = waiting.get(message.number);
      if (sent === undefined) return;
      waiting.delete(message.number);
      // An attempt counts as a success only once something came back.
      failures = 0;
      trips.push(now - sent);
      if (trips.length > SAMPLES) trips.shift();
      setState($("ws-state"), "good", "Connected");
      show($("ws-waiting"), waiting.size);
      if (message.text) show($("ws-echo"), `“${message.text}” came back after ${milliseconds(now - sent)} ms`);
      draw();
    }

    function draw() {
      const sorted = [...trips].sort((a, b) => a - b);
      const middle = sorted.length >> 1;
      const median = sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
      const longest = sorted[sorted.length - 1];
      show($("ws-rtt"), milliseconds(trips[trips.length - 1]));
      show($("ws-min"), `${milliseconds(sorted[0])} ms`);
      show($("ws-median"), `${milliseconds(median)} ms`);
      show($("ws-max"), `${milliseconds(longest)} ms`);

      // At least twice the median, so that tiny differences do not look like storms.
      const top = Math.max(longest, 2 * median, 0.1);
      const step = 240 / (SAMPLES - 1);
      const left = 240 - step * (trips.length - 1);
      const points = trips.map((trip, i) => `${(left + i * step).toFixed(1)},${(46 - (trip / top) * 44).toFixed(1)}`);
      $("ws-line").setAttribute("points", points.join(" "));
      $("ws-area").setAttribute("d", `M${left.toFixed(1)},48 L${points.join(" L")} L240,48 Z`);
    }

    function everySecond() {
      if (!socket || socket.readyState !== WebSocket.OPEN) return;
      send("");
      const [oldest] = waiting.values();
      const age = oldest === undefined ? 0 : performance.now() - oldest;
      if (age > GIVE_UP_MS) {
        const silent = socket;
        ended(silent, 0);
        silent.close(4000, "no echo");
      } else if (age > LATE_MS) {
        setState($("ws-state"), "wait", "Connected, waiting for an echo");
      }
    }

    $("ws-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const text = $("ws-text").value || `Sent at ${new Date().toLocaleTimeString()}`;
      if (send(text)) $("ws-text").value = "";
      else show($("ws-echo"), "not sent, there is no connection now");
    });
    $("ws-send").disabled = false;
    addEventListener("online", () => {
      if (retry === null) return;
      clearTimeout(retry);
      connect();
    });
    setInterval(everySecond, 1000);
    connect();
  }

  /* Event stream */

  function startEvents() {
    const QUIET_MS = 3500;

    let source = null;
    let last = null;
    let heard = performance.now();
    let received = 0;
    let gaps = 0;
    let replayed = 0;
    let opened = 0;
    let failures = 0;

    function connect() {
      setState($("sse-state"), "wait", opened === 0 ? "Connecting" : "Reconnecting");
      const target = address("events");
      if (last !== null) target.searchParams.set("last_event_id", last);
      source = new EventSource(target);
      source.onopen = () => {
        opened += 1;
        heard = performance.now();
        show($("sse-reconnects"), opened - 1);
        setState($("sse-state"), "good", "Receiving");
      };
      source.onmessage = (event) => tick(JSON.parse(event.data));
      source.onerror = () => {
        setState($("sse-state"), "bad", "Interrupted, reconnecting");
        // The browser reconnects by itself after a broken stream, but not after an answer that is no stream.
        if (source.readyState !== EventSource.CLOSED) return;
        setTimeout(connect, backoff(failures));
        failures += 1;
      };
    }

    function tick(data) {
      heard = performance.now();
      failures = 0;
      received += 1;
      // A smaller number than before means that the app was started anew, which is no gap.
      if (last !== null && data.seq > last + 1) gaps += data.seq - last - 1;
      if (data.replayed) replayed += 1;
      last = data.seq;
      show($("sse-seq"), data.seq);
      show($("sse-time"), new Date(data.time_unix_ms).toLocaleTimeString());
      show($("sse-uptime"), duration(data.uptime_seconds));
      show($("sse-received"), received);
      show($("sse-gaps"), gaps);
      show($("sse-replayed"), replayed);
      $("sse-beat").className = received % 2 ? "now" : "then";
      setState($("sse-state"), "good", "Receiving");
    }

    setInterval(() => {
      if (source.readyState === EventSource.OPEN && performance.now() - heard > QUIET_MS) {
        setState($("sse-state"), "wait", "Connected, but quiet");
      }
    }, 1000);
    connect();
  }

  /* Upload */

  function startUpload() {
    const RANDOM_BYTES = 32 * MIB;
    // `crypto.subtle` takes a message as a whole, so what it hashes must fit into memory.
    const HASH_BYTES_MAX = 256 * MIB;

    let request = null;
    let trigger = null;

    function randomBytes() {
      const bytes = new Uint8Array(RANDOM_BYTES);
      // One call hands out no more than 64 KiB.
      for (let at = 0; at < bytes.length; at += 65_536) crypto.getRandomValues(bytes.subarray(at, at + 65_536));
      return new Blob([bytes]);
    }

    /** The checksum of `blob`, or why there is none. */
    async function hash(blob) {
      if (!globalThis.crypto?.subtle) return { why: "this browser hashes only on HTTPS or localhost" };
      if (blob.size > HASH_BYTES_MAX) return { why: "too large to hash in this page" };
      try {
        const digest = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
        return { sha256: Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("") };
      } catch {
        return { why: "the bytes could not be read again" };
      }
    }

    /** XMLHttpRequest, because `fetch` does not report the progress of an upload. */
    function post(blob, onProgress) {
      return new Promise((resolve, reject) => {
        request = new XMLHttpRequest();
        request.open("POST", address("upload"));
        request.setRequestHeader("content-type", "application/octet-stream");
        request.upload.onprogress = (event) => onProgress(event.loaded);
        request.onload = () => {
          if (request.status !== 200) {
            reject(new Error(failure(request.status, request.getResponseHeader("gateway-error"))));
            return;
          }
          try {
            resolve(JSON.parse(request.responseText));
          } catch {
            reject(new Error("the answer was no JSON"));
          }
        };
        request.onerror = () => reject(new Error("the connection broke"));
        request.onabort = () => reject(new Error("it was cancelled"));
        request.send(blob);
      });
    }

    /** The focus goes along, because a button that is disabled or hidden drops it. */
    function busy(on) {
      const before = document.activeElement;
      if (on) trigger = before;
      if (on) $("upload-cancel").hidden = false;
      if (on && (before === $("upload-random") || before === $("upload-send"))) $("upload-cancel").focus();
      $("upload-random").disabled = on;
      $("upload-file").disabled = on;
      $("upload-send").disabled = on || $("upload-file").files.length === 0;
      if (!on && before === $("upload-cancel")) trigger?.focus();
      if (!on) $("upload-cancel").hidden = true;
    }

    function result(verdict, lines) {
      const box = $("upload-result");
      box.dataset.verdict = verdict;
      box.replaceChildren(
        ...lines.map((line) => {
          const paragraph = document.createElement("p");
          paragraph.textContent = line;
          return paragraph;
        }),
      );
    }

    function judge(blob, answer, local) {
      const facts = [
        `App: ${answer.bytes} bytes in ${answer.seconds.toFixed(2)} s, SHA-256 ${answer.sha256}`,
        local.sha256 ? `Here: ${blob.size} bytes, SHA-256 ${local.sha256}` : `Here: ${blob.size} bytes, not hashed: ${local.why}`,
      ];
      if (answer.bytes !== blob.size) return result("different", ["The lengths differ", ...facts]);
      if (!local.sha256) return result("unknown", ["The lengths agree", ...facts]);
      const same = local.sha256 === answer.sha256;
      return result(same ? "same" : "different", [same ? "Both checksums agree" : "The checksums differ", ...facts]);
    }

    async function send(blob, name) {
      const began = performance.now();
      busy(true);
      result("none", []);
      setState($("upload-state"), "wait", "Sending");
      $("upload-progress").value = 0;
      const onProgress = (sent) => {
        const seconds = Math.max((performance.now() - began) / 1000, 0.001);
        $("upload-progress").value = blob.size ? (1000 * sent) / blob.size : 1000;
        show($("upload-status"), `${name}: ${size(sent)} of ${size(blob.size)}, ${size(Math.round(sent / seconds))} per second`);
      };
      onProgress(0);
      try {
        const local = hash(blob);
        const answer = await post(blob, onProgress);
        onProgress(blob.size);
        judge(blob, answer, await local);
        setState($("upload-state"), "good", "Done");
      } catch (error) {
        result("failed", ["The upload did not finish", `Because ${error.message}.`]);
        setState($("upload-state"), "bad", "Failed");
      } finally {
        busy(false);
      }
    }

    $("upload-file").addEventListener("change", () => busy(false));
    $("upload-send").addEventListener("click", () => {
      const [file] = $("upload-file").files;
      if (file) send(file, file.name);
    });
    $("upload-random").addEventListener("click", () => send(randomBytes(), "Random bytes"));
    $("upload-cancel").addEventListener("click", () => request?.abort());
    // A reload may keep the chosen file.
    busy(false);
  }

  /* The request as the app saw it */

  function startRequest() {
    const ADDED = /^(x-forwarded-.*|forwarded|x-real-ip|via|gateway-.*|traceparent|tracestate|x-request-id)$/;

    function row([name, value]) {
      const line = document.createElement("tr");
      const head = document.createElement("th");
      const cell = document.createElement("td");
      head.scope = "row";
      head.textContent = name;
      cell.textContent = value;
      if (ADDED.test(name)) {
        const chip = document.createElement("span");
        chip.className = "chip";
        chip.textContent = "on the way";
        head.append(" ", chip);
        line.className = "added";
      }
      line.append(head, cell);
      return line;
    }

    let asking = false;

    async function ask() {
      if (asking) return;
      asking = true;
      setState($("request-state"), "wait", "Asking");
      try {
        const answer = await fetch(address("request?from=the+page&raw=%2F..%2F"), { cache: "no-store" });
        if (!answer.ok) throw new Error(failure(answer.status, answer.headers.get("gateway-error")));
        const seen = await answer.json();
        show($("request-method"), seen.method);
        show($("request-target"), seen.target);
        show($("request-version"), seen.version);
        show($("request-peer"), seen.peer ?? "unknown");
        $("request-headers").replaceChildren(...seen.headers.map(row));
        setState($("request-state"), "good", `${seen.headers.length} headers`);
      } catch (error) {
        setState($("request-state"), "bad", `Failed: ${error.message}`);
      } finally {
        asking = false;
      }
    }

    $("request-again").addEventListener("click", ask);
    $("request-again").disabled = false;
    ask();
  }

  startEcho();
  startEvents();
  startUpload();
  startRequest();
})();
