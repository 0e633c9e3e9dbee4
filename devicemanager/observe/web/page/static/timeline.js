// The events of the last two minutes as ticks; warnings are taller and have another colour.

const SECONDS = 120;

export class Timeline {
  #canvas;
  #events;

  /** `events()` returns all received events, with times of the kubelet's clock. */
  constructor(canvas, events) {
    this.#canvas = canvas;
    this.#events = events;
    setInterval(() => document.visibilityState === "visible" && this.draw(), 1000);
  }

  draw() {
    const scale = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (!width) return;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    const pen = this.#canvas.getContext("2d");
    pen.scale(scale, scale);
    const style = getComputedStyle(this.#canvas);
    const events = this.#events();
    // With a manual clock, the kubelet's time differs from the browser's: the latest event is "now".
    const last = events.at(-1)?.time ?? 0;
    const here = Date.now() / 1000;
    const now = Math.abs(here - last) < 86400 ? Math.max(here, last) : last;
    pen.fillStyle = style.borderBottomColor;
    pen.fillRect(0, height - 1, width, 1);
    for (const event of events) {
      const x = width - ((now - event.time) / SECONDS) * width;
      if (x < 0) continue;
      pen.fillStyle = event.warning ? style.outlineColor : style.color;
      pen.fillRect(Math.round(x) - 1, event.warning ? 0 : height * 0.4, 2, height);
    }
  }
}
