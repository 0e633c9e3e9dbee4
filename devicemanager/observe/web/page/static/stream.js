// Server-sent events: a whole document first, then what changes.
//
// The stream is closed while nobody sees the page: a browser has few connections to one host,
// and hidden pages shall not take them all, nor have anybody work for them.

const FIRST_WAIT = 500;
const LONGEST_WAIT = 8000;

export class Stream {
  #source = null;
  #timer = null;
  #wait = FIRST_WAIT;
  #seen = "";
  #handlers;

  /** `handlers`: whole(message), delta(message), state(word). */
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
    // A browser gives up after some errors; we never do.
    source.addEventListener("error", () => this.#again());
  }

  #take(event, handler) {
    this.#wait = FIRST_WAIT;
    this.#seen = event.lastEventId;
    this.#handlers.state("live");
    try {
      handler(JSON.parse(event.data));
    } catch (error) {
      this.#seen = ""; // begin anew: what we have is half a picture
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
