// Server-sent events: the whole document first, then changes.
//
// The stream is closed while the page is hidden. A browser has about six connections to one host,
// and hidden pages must not use them all up or cost the server anything.

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

export class Stream {
  #source = null;
  #timer = null;
  #wait = FIRST_WAIT;
  #seen = "";
  #handlers;

  /** `handlers` has whole(message), delta(message) and state(word). */
  constructor(handlers) {
    this.#handlers = handlers;
    document.addEventListener("visibilitychange", () => this.#visible());
    addEventListener("pagehide", () => this.#close());
    addEventListener("pageshow", (event) => event.persisted && this.#visible());
  }

  open() {
    this.#close();
    const since = this.#seen ? `?since=${encodeURIComponent(this.#seen)}` : "";
    const source = new EventSource(`/page/stream${since}`);
    this.#source = source;
    source.addEventListener("whole", (event) => this.#take(event, this.#handlers.whole));
    source.addEventListener("delta", (event) => this.#take(event, this.#handlers.delta));
    // An EventSource gives up after some errors; this page retries without end.
    source.addEventListener("error", () => this.#again());
  }

  #take(event, handler) {
    this.#wait = FIRST_WAIT;
    this.#seen = event.lastEventId;
    this.#handlers.state("live");
    try {
      handler(JSON.parse(event.data));
    } catch (error) {
      this.#seen = ""; // the message may be partly applied: request the whole document
      console.error(error);
      this.#again();
    }
  }

  #again() {
    this.#close();
    this.#handlers.state("lost");
    this.#timer = setTimeout(() => this.open(), this.#wait * (0.5 + Math.random()));
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT);
  }

  #visible() {
    if (document.visibilityState === "visible") {
      if (this.#source === null) this.open();
    } else {
      this.#close();
      this.#handlers.state("paused");
    }
  }

  #close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
  }
}
