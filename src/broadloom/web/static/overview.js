// The whole history below the timeline: number of peers, and crashes.

export class Overview {
  constructor(canvas) {
    this.canvas = canvas;
    this.overview = null;
  }

  draw(overview) {
    this.overview = overview;
    this.mark(this.part ?? 1);
  }

  mark(part) {
    this.part = part;
    const { canvas, overview } = this;
    if (!overview) return;
    const ratio = window.devicePixelRatio || 1, wide = canvas.clientWidth, high = canvas.clientHeight;
    if (!wide) return;
    if (canvas.width !== Math.round(wide * ratio)) canvas.width = Math.round(wide * ratio);
    if (canvas.height !== Math.round(high * ratio)) canvas.height = Math.round(high * ratio);
    const pen = canvas.getContext("2d");
    const style = getComputedStyle(canvas);
    const most = Math.max(1, ...overview.peers), bins = overview.peers.length, step = wide / bins;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, high);
    pen.fillStyle = style.getPropertyValue("--bl-overview");
    pen.beginPath();
    pen.moveTo(0, high);
    overview.peers.forEach((count, place) => { pen.lineTo(place * step, high - (count / most) * (high - 4)); pen.lineTo((place + 1) * step, high - (count / most) * (high - 4)); });
    pen.lineTo(wide, high);
    pen.fill();
    pen.fillStyle = style.getPropertyValue("--bl-lost");
    overview.deaths.forEach((count, place) => { if (count) pen.fillRect(place * step - 0.5, 0, Math.max(2, step), high); });
  }
}
