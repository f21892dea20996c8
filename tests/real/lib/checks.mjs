// Checks for helpers in JavaScript, printed as the lines that `count_checks` in common.sh counts.

let failed = 0;

export function ok(text) {
  console.log(`ok ${oneLine(text)}`);
}

export function fail(text) {
  failed += 1;
  console.log(`FAIL ${oneLine(text)}`);
}

export function check(text, holds, otherwise = "") {
  if (holds) ok(text);
  else fail(otherwise === "" ? text : `${text}: ${otherwise}`);
  return holds;
}

function oneLine(text) {
  return String(text).replace(/\s+/g, " ").slice(0, 400);
}

export async function until(what, seconds, condition) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

// --name value … of the command line.
export function options() {
  const found = {};
  for (let at = 2; at < process.argv.length; at += 2) found[process.argv[at].replace(/^--/, "")] = process.argv[at + 1];
  return found;
}

export function end() {
  process.exitCode = failed === 0 ? 0 : 1;
}
