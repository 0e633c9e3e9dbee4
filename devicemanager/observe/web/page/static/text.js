// Shows untrusted text as text only.
//
// Elements are created only here, and strings become text nodes. So markup in a device ID or a
// manifest is never parsed.

// The same characters as in devicemanager.core.printable: controls, bidirectional formatting,
// invisible characters, line and paragraph separators, lone surrogates, tags.
const UNSAFE =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;

function escaped(character) {
  const code = character.codePointAt(0);
  const [letter, digits] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${letter}${code.toString(16).padStart(digits, "0")}`;
}

/** Return the whole text with unsafe characters escaped. */
export function whole(text) {
  return String(text).replace(UNSAFE, escaped);
}

/** Return the text on one line, cut to a number of characters. */
export function short(text, longest = 48) {
  const given = String(text);
  if (given.length <= longest) return whole(given);
  // Do not cut a surrogate pair in half.
  const cut = given.codePointAt(longest - 2) > 0xffff ? longest - 2 : longest - 1;
  return `${whole(given.slice(0, cut))}…`;
}

/** Create an element. `attributes` must be trusted; children are elements or any text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Create an element for untrusted text that cannot reorder the text around it. */
export function said(text, longest = 48) {
  return make("bdi", {}, short(text, longest));
}

/** Create a scrolling element for the whole of an untrusted text. */
export function saidWhole(text) {
  return make("bdi", { class: "whole", tabindex: String(text).length > 200 ? 0 : null }, whole(text));
}

const numbers = new Intl.NumberFormat("en");

/** Format a number: "10,000". */
export function count(number) {
  return numbers.format(number);
}

/** Format a number with a noun: "1 device", "2 devices". */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Format seconds since the epoch as a time of day. */
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const parts = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return `${parts}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** Format seconds: 0.0012 as "1.2 ms". */
export function duration(seconds) {
  if (seconds < 1) return `${(seconds * 1000).toPrecision(2).replace(/\.?0+$/, "") || 0} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return `${Math.round(seconds / 60)} min`;
}
