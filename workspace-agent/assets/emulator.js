// The emulator (xterm.js) as this page uses it: colours by the system's setting, and answers to what programs ask only where this page
// is the one that has to answer.

import { FitAddon } from "./addon-fit.mjs";
import { Terminal } from "./xterm.mjs";

const THEMES = {
  dark: { background: "#11141a", foreground: "#e6e6e3", cursor: "#e6e6e3", selectionBackground: "#3d5a80" },
  light: {
    background: "#f5f6f9", foreground: "#1c1c1a", cursor: "#1c1c1a", selectionBackground: "#b5d3f2",
    black: "#1c1c1a", red: "#b3261e", green: "#1a6e2e", yellow: "#7a5900", blue: "#0b5cad", magenta: "#8b2f97", cyan: "#0a6b75", white: "#6f6f6a",
    brightBlack: "#5d5d58", brightRed: "#c9372c", brightGreen: "#22863a", brightYellow: "#8a6500", brightBlue: "#1769c2", brightMagenta: "#9f45ab",
    brightCyan: "#117e89", brightWhite: "#3b3b38",
  },
};

// Sequences by which a program asks the terminal something (ECMA-48, and xterm's own): what they are called in the parser.
const QUESTIONS = [
  { final: "c" }, { prefix: ">", final: "c" }, { prefix: "=", final: "c" }, // device attributes
  { final: "n" }, { prefix: "?", final: "n" }, // status, position
  { intermediates: "$", final: "p" }, { prefix: "?", intermediates: "$", final: "p" }, // modes
  { prefix: ">", final: "q" }, // version
];
const COLOURS = [4, 10, 11, 12]; // asked for with "?" in place of a colour

// `on.typed` gets what the user types, as text; `on.bytes` what is no text; `on.leave` the key that leaves the terminal. `answers`
// says whether this page answers now.
export function emulator(element, { on, answers }) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  const terminal = new Terminal({
    cursorBlink: !calm.matches,
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    fontSize: 14,
    scrollback: 10000,
    minimumContrastRatio: 4.5,
    theme: dark.matches ? THEMES.dark : THEMES.light,
  });
  dark.addEventListener("change", () => (terminal.options.theme = dark.matches ? THEMES.dark : THEMES.light));
  calm.addEventListener("change", () => (terminal.options.cursorBlink = !calm.matches));
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  const unanswered = () => !answers();
  for (const question of QUESTIONS) terminal.parser.registerCsiHandler(question, unanswered);
  for (const colour of COLOURS) terminal.parser.registerOscHandler(colour, (text) => text.includes("?") && unanswered());
  terminal.parser.registerDcsHandler({ intermediates: "$", final: "q" }, unanswered);
  terminal.attachCustomKeyEventHandler((event) => keys(event, terminal, on));
  terminal.onData(on.typed);
  terminal.onBinary((text) => on.bytes(Uint8Array.from(text, (character) => character.charCodeAt(0))));
  terminal.open(element);
  return { terminal, window: () => fit.proposeDimensions() };
}

// The keys that are the page's own. Every other one is the terminal's.
function keys(event, terminal, on) {
  if (event.type !== "keydown") return true;
  if (event.key === "F6" && event.shiftKey) {
    event.preventDefault();
    on.leave();
    return false;
  }
  if (event.code === "KeyC" && event.ctrlKey && event.shiftKey && terminal.hasSelection()) {
    event.preventDefault();
    navigator.clipboard?.writeText(terminal.getSelection()).catch(() => {});
    return false;
  }
  // Pasting is the browser's own.
  return !(event.code === "KeyV" && event.ctrlKey && event.shiftKey);
}
