// What changes something: operations of the control API, with the token.

const KEY = "devicemanager-token";

/** The token of this tab. It comes in the fragment of the address, which no server is sent. */
export function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    setToken(given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return token();
}

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(text) {
  sessionStorage.setItem(KEY, text.trim());
}

/** An answer that says why not. */
class Rejected extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Ask; the answer's JSON, or null if it has none. Raises Rejected. */
export async function ask(method, path, body, kind = "application/json") {
  const headers = {};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = kind;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, cache: "no-store" });
  } catch {
    throw new Rejected(0, "the kubelet's server does not answer");
  }
  const text = await answer.text();
  if (answer.ok) return text ? JSON.parse(text) : null;
  throw new Rejected(answer.status, detailOf(text) || `${answer.status} ${answer.statusText}`);
}

/** The same with a body that is made JSON of. */
export function post(path, value) {
  return ask("POST", path, value === undefined ? undefined : JSON.stringify(value));
}

/** A name as a part of a path. */
export const quoted = (name) => encodeURIComponent(name);

/** The line that says what is wrong: of a problem, or the text itself. */
function detailOf(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return text.split("\n")[0];
  }
}
