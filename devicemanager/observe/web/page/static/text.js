// What others wrote, shown as text and as nothing else.
//
// Elements are made here and nowhere else: strings become text nodes, so that no markup of a
// device id or a manifest is ever read as markup.

// As devicemanager.core.printable: controls, what reorders the text around it, line and
// paragraph separators, lone surrogates.
const UNSAFE = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]/gu;

function escaped(character) {
  const code = character.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** All of a text, with every unsafe character as its escape. */
export function whole(text) {
  return String(text).replace(UNSAFE, escaped);
}

/** The text on one line, of which at most so many characters are shown. */
export function short(text, longest = 48) {
  const given = String(text);
  if (given.length <= longest) return whole(given);
  // Not through the middle of a character that takes two places.
  const cut = given.codePointAt(longest - 2) > 0xffff ? longest - 2 : longest - 1;
  return `${whole(given.slice(0, cut))}…`;
}

/** An element; `attributes` are ours, children are elements or text. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A text of others, kept from reordering what stands around it. */
export function said(text, longest = 48) {
  return make("bdi", {}, short(text, longest));
}

/** All of a text of others, in a box that scrolls. */
export function saidWhole(text) {
  return make("bdi", { class: "whole", tabindex: String(text).length > 200 ? 0 : null }, whole(text));
}

const numbers = new Intl.NumberFormat("en");

/** 10,000. */
export function count(number) {
  return numbers.format(number);
}

/** "1 device", "2 devices". */
export function counted(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** Seconds since the epoch as a time of day. */
export function clock(seconds) {
  const at = new Date(seconds * 1000);
  const two = (number) => String(number).padStart(2, "0");
  const parts = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return `${parts}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** 0.0012 as "1.2 ms". */
export function duration(seconds) {
  if (seconds < 1) return `${(seconds * 1000).toPrecision(2).replace(/\.?0+$/, "") || 0} ms`;
  if (seconds < 120) return `${seconds.toFixed(1)} s`;
  return `${Math.round(seconds / 60)} min`;
}
