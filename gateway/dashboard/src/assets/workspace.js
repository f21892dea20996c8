// The page of one workspace: shows what happens as it happens, and leads a visitor who waits to where they came from.
function followWorkspace(box) {
  const { name, back, here } = box.dataset;
  // The browser named the way back only once: from now on the address has it.
  history.replaceState(null, "", here);
  const events = new EventSource(`/api/v1/workspaces/${name}/events`);
  const goBack = () => {
    events.close();
    location.replace(back);
  };
  // The app may answer before the cluster has counted everything as running: this page's own address then leads there.
  let awaited = false;
  let asking = false;
  const ask = async () => {
    if (asking) return;
    asking = true;
    const answer = await fetch(location.href, { redirect: "manual" }).catch(() => undefined);
    if (answer?.type === "opaqueredirect") return goBack();
    setTimeout(() => {
      asking = false;
      if (awaited) ask();
    }, 300);
  };
  // One loading at a time; what happens meanwhile is in the next one.
  let isLoading = false;
  let isStale = false;
  const show = async () => {
    isStale = true;
    if (isLoading) return;
    isLoading = true;
    while (isStale) {
      isStale = false;
      await reload("status").catch(() => {});
    }
    isLoading = false;
  };
  let now = box.dataset.shown;
  events.addEventListener("state", (event) => {
    const state = JSON.parse(event.data);
    awaited = Boolean(back) && state.desired === "Running" && state.connected;
    if (awaited && state.actual === "Running") return goBack();
    if (awaited) ask();
    const next = [state.desired, state.actual, state.connected].join(" ");
    // Ports and agent are in other parts of the page.
    if (next !== now && state.connected !== now.endsWith("true") && !document.activeElement?.closest("form")) return location.reload();
    now = next;
    show();
  });
  for (const kind of ["idle", "progress", "failure"]) events.addEventListener(kind, show);
  events.addEventListener("end", () => {
    events.close();
    show();
  });
  // A press of a button is on the way to another page: what is told meanwhile must not load this one again.
  addEventListener("pagehide", () => events.close());
}

if (one("#workspace[data-shown]")) followWorkspace(one("#workspace"));

// A page with a command for a machine goes on once its agent is connected.
function waitForAgent(line) {
  const name = line.dataset.waits;
  const look = async () => {
    const answer = await fetch(`/api/v1/workspaces/${name}`).catch(() => undefined);
    if (answer?.ok && (await answer.json()).connected) return location.assign(`/workspaces/${name}`);
    setTimeout(look, 1500);
  };
  look();
}

if (one("[data-waits]")) waitForAgent(one("[data-waits]"));
