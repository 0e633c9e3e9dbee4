// Requests to the control API, with the token.

const KEY = "devicemanager-token";

/** The token of this tab. It arrives in the URL's fragment, which browsers send to no server. */
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

/** An error response. */
class Rejected extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Send a request. Returns the JSON of the response, or null if it is empty. Throws Rejected. */
export async function ask(method, path, body, kind = "application/json") {
  const headers = {};
  if (token()) headers.Authorization = `Bearer ${token()}`;
  if (body !== undefined) headers["Content-Type"] = kind;
  let answer;
  try {
    answer = await fetch(path, { method, headers, body, cache: "no-store" });
  } catch {
    throw new Rejected(0, "no response from the kubelet's HTTP server");
  }
  const text = await answer.text();
  if (answer.ok) return text ? JSON.parse(text) : null;
  throw new Rejected(answer.status, detailOf(text) || `${answer.status} ${answer.statusText}`);
}

/** Send a POST request with a JSON body. */
export function post(path, value) {
  return ask("POST", path, value === undefined ? undefined : JSON.stringify(value));
}

/** Quote a name for a path. */
export const quoted = (name) => encodeURIComponent(name);

/** Return the error text: the detail of a problem document, or else the body. */
function detailOf(text) {
  try {
    return JSON.parse(text).detail;
  } catch {
    return text.split("\n")[0];
  }
}
