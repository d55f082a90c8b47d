// Draws the scene on a canvas. Every color has a distinct shape as well.
//
// With 1,000 moving peers and 2,000 links, headless Chromium without a GPU draws 60 frames/s with 10 ms of the main thread
// each. force-graph 1.52.0 (201 kB) draws 48 to 58 with 14 to 16 ms, sigma 3.0.3 with graphology (159 kB) 7.

import { FADE_MS, RIPPLE_MS } from "/static/scene.js";

const LINES_A_PATH = 40; // long paths of crossing lines are slow to fill in
const THIN_FROM = 400; // peers: from here on no line is wider than a pixel, which is drawn many times faster
const AGES = 6; // steps in which things fade
const GLOW_MS = 550; // a peer that a message has just reached
const MOVE_MS = 220; // time for a message to travel along a link

const COLORS = {
  light: {
    link: "rgba(60,72,92,0.30)", peer: "#1f6fb2", rim: "#ffffff", fresh: "#00875f", lost: "#b0338a", paused: "#5b6470",
    chosen: "#111827", text: "#1b2330", back: "rgba(255,255,255,0.88)",
    hops: ["#5c1f00", "#8c2f00", "#b84300", "#d95f02", "#ec7a1c", "#f59a4a", "#f9b87c", "#fbd2a8"],
  },
  dark: {
    link: "rgba(170,185,210,0.24)", peer: "#5aaef0", rim: "#11161f", fresh: "#2fcf9f", lost: "#f078c8", paused: "#a7b0bd",
    chosen: "#ffffff", text: "#e8edf5", back: "rgba(20,26,36,0.88)",
    hops: ["#fff4cf", "#ffe49a", "#ffd062", "#ffb638", "#f79a26", "#e07d1f", "#bd641c", "#97501b"],
  },
};

export class Drawing {
  constructor(canvas, scene) {
    Object.assign(this, { canvas, scene });
    this.context = canvas.getContext("2d");
    this.x = this.y = 0; // the center
    this.scale = 1;
    this.fits = true; // the camera follows automatically
    this.chosen = null;
    this.hovered = null;
    this.layer = document.createElement("canvas"); // the links while nothing moves
    this.layerOf = "";
    this.drawnOf = "";
    this.drawnPeerStats = null;
    this.restlessUntil = 0;
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  resize() {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const { clientWidth: wide, clientHeight: high } = this.canvas;
    if (this.canvas.width !== Math.round(wide * ratio) || this.canvas.height !== Math.round(high * ratio)) {
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
    }
    Object.assign(this, { wide, high, ratio });
  }

  /** Ease the camera until everything fits. */
  fit(step = 0.08) {
    let left = Infinity, right = -Infinity, top = Infinity, bottom = -Infinity;
    for (const { x, y } of this.scene.nodes.values()) {
      left = Math.min(left, x); right = Math.max(right, x);
      top = Math.min(top, y); bottom = Math.max(bottom, y);
    }
    if (left > right) return;
    const room = 26;
    const scale = Math.min((this.wide - 2 * room) / (right - left + 40), (this.high - 2 * room) / (bottom - top + 40), 3.2);
    const bigger = Math.max(scale, 0.02) / this.scale - 1, dx = (left + right) / 2 - this.x, dy = (top + bottom) / 2 - this.y;
    if (step < 1 && Math.abs(bigger) < 0.01 && Math.hypot(dx, dy) * this.scale < 2) return; // near enough: keep still
    this.scale *= 1 + bigger * step;
    this.x += dx * step;
    this.y += dy * step;
  }

  zoom(by, at) {
    this.fits = false;
    const before = at && this.where(at);
    this.scale = Math.min(8, Math.max(0.02, this.scale * by));
    if (!before) return;
    const after = this.where(at);
    this.x += before.x - after.x;
    this.y += before.y - after.y;
  }

  where({ x, y }) {
    return { x: (x - this.wide / 2) / this.scale + this.x, y: (y - this.high / 2) / this.scale + this.y };
  }

  /** The peer near a point of the canvas. */
  find(at, within = 14) {
    const { x, y } = this.where(at);
    let found = null, best = (within / this.scale) ** 2;
    for (const node of this.scene.nodes.values()) {
      const far = (node.x - x) ** 2 + (node.y - y) ** 2;
      if (far < best) { best = far; found = node; }
    }
    return found;
  }

  get radius() {
    const room = Math.sqrt((this.wide * this.high) / Math.max(1, this.scene.nodes.size));
    return Math.min(8, Math.max(2, room * 0.085)) * (this.fits ? 1 : Math.max(1, Math.min(2, this.scale / 2)));
  }

  /** Draws only if something changed, so an idle page uses almost no CPU. */
  drawIfNeeded(now) {
    const { scene } = this;
    const isDark = document.body.classList.contains("body--dark");
    const of = [scene.version, this.x, this.y, this.scale, this.canvas.width, this.canvas.height, isDark, this.chosen?.n, this.hovered?.n].join();
    const isMoving = !scene.layout.isAsleep || scene.ripples.length || scene.ghosts.length || scene.lost.length;
    if (isMoving || of !== this.drawnOf || scene.peerStats !== this.drawnPeerStats || now < this.restlessUntil) {
      if (isMoving || of !== this.drawnOf) this.restlessUntil = now + FADE_MS; // what is new, or glows, fades
      Object.assign(this, { drawnOf: of, drawnPeerStats: scene.peerStats });
      this.draw(now);
    }
  }

  draw(now) {
    const pen = this.context, scene = this.scene;
    const colors = document.body.classList.contains("body--dark") ? COLORS.dark : COLORS.light;
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.wide, this.high);
    const ox = this.wide / 2 - this.x * this.scale, oy = this.high / 2 - this.y * this.scale;
    for (const node of scene.nodes.values()) { node.sx = ox + node.x * this.scale; node.sy = oy + node.y * this.scale; }
    for (const node of scene.ghosts) { node.sx = ox + node.x * this.scale; node.sy = oy + node.y * this.scale; }
    this.links(pen, colors, now);
    this.ripples(pen, colors, now);
    this.peers(pen, colors, now);
    this.names(pen, colors);
  }

  links(pen, colors, now) {
    const { nodes, links, lost } = this.scene;
    const isThin = nodes.size > THIN_FROM;
    const fresh = [];
    for (const link of links.values()) {
      if (link.born && now - link.born < FADE_MS && nodes.has(link.a) && nodes.has(link.b)) fresh.push({ from: nodes.get(link.a), to: nodes.get(link.b), at: link.born });
    }
    this.settled(pen, colors);
    pen.lineWidth = isThin ? 1 : 2;
    pen.strokeStyle = colors.fresh;
    fading(pen, fresh, now, FADE_MS, ({ from, to }) => line(pen, from, to));
    pen.strokeStyle = colors.lost;
    if (!isThin) pen.setLineDash([5, 4]);
    fading(pen, lost, now, FADE_MS, ({ from, to }) => line(pen, from, to));
    pen.setLineDash([]);
    if (this.chosen) {
      pen.strokeStyle = colors.chosen;
      pen.lineWidth = 1.8;
      pen.beginPath();
      for (const each of this.chosen.near) if (nodes.has(each)) line(pen, this.chosen, nodes.get(each));
      pen.stroke();
    }
  }

  /** Links without recent changes. While nothing moves they are drawn once and then copied. */
  settled(pen, colors) {
    const { scene, layer } = this;
    const isAtRest = scene.layout.isAsleep;
    const of = [scene.version, this.x, this.y, this.scale, this.canvas.width, this.canvas.height, colors.link].join();
    if (!isAtRest || of !== this.layerOf) {
      let target = pen;
      if (isAtRest) {
        layer.width = this.canvas.width;
        layer.height = this.canvas.height;
        target = layer.getContext("2d");
        target.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      }
      this.layerOf = isAtRest ? of : "";
      this.allLinks(target, colors);
    }
    if (!isAtRest) return;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(layer, 0, 0);
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
  }

  allLinks(pen, colors) {
    const { nodes, links } = this.scene;
    pen.lineWidth = nodes.size > THIN_FROM ? 0.7 : 1.1;
    pen.strokeStyle = colors.link;
    let count = 0;
    pen.beginPath();
    for (const { a, b } of links.values()) {
      const from = nodes.get(a), to = nodes.get(b);
      if (!from || !to) continue;
      line(pen, from, to);
      if (++count % LINES_A_PATH === 0) { pen.stroke(); pen.beginPath(); }
    }
    pen.stroke();
  }

  /** Each hop of a message moves along its link, colored by its number. */
  ripples(pen, colors, now) {
    pen.lineWidth = this.scene.nodes.size > THIN_FROM ? 1 : 2;
    const byHop = colors.hops.map(() => []);
    for (const each of this.scene.ripples) byHop[Math.min(each.hops, byHop.length - 1)].push(each);
    byHop.forEach((steps, hops) => {
      pen.strokeStyle = colors.hops[hops];
      fading(pen, steps, now, RIPPLE_MS, ({ from, to, at }) => {
        const part = this.isStill ? 1 : Math.min(1, (now - at) / MOVE_MS);
        pen.moveTo(from.sx, from.sy);
        pen.lineTo(from.sx + (to.sx - from.sx) * part, from.sy + (to.sy - from.sy) * part);
      });
    });
  }

  peers(pen, colors, now) {
    const radius = this.radius, scene = this.scene;
    const freeSlots = new Set((scene.peerStats?.[3] ?? []).map(([n]) => n)), paused = new Set(scene.peerStats?.[5] ?? []);
    const glowing = colors.hops.map(() => []), fresh = [], hollow = [], square = [];
    pen.fillStyle = colors.peer;
    pen.beginPath();
    for (const node of scene.nodes.values()) {
      if (node.born && now - node.born < FADE_MS) fresh.push(node);
      if (paused.has(node.n)) square.push(node);
      else if (freeSlots.has(node.n)) hollow.push(node);
      else if (node.glow && now - node.glow < GLOW_MS) glowing[Math.min(node.hops, glowing.length - 1)].push(node);
      else circle(pen, node, radius);
    }
    pen.fill();
    glowing.forEach((nodes, hops) => {
      pen.fillStyle = colors.hops[hops];
      pen.beginPath();
      for (const node of nodes) circle(pen, node, radius * (1 + 0.7 * (1 - (now - node.glow) / GLOW_MS) ** 2));
      pen.fill();
    });
    pen.fillStyle = colors.rim;
    pen.strokeStyle = colors.peer;
    pen.lineWidth = Math.max(1.5, radius * 0.45);
    pen.beginPath();
    for (const node of hollow) circle(pen, node, radius * 0.9);
    pen.fill();
    pen.stroke();
    pen.fillStyle = colors.paused;
    for (const { sx, sy } of square) pen.fillRect(sx - radius * 1.2, sy - radius * 1.2, radius * 2.4, radius * 2.4);
    pen.lineWidth = 1.5;
    pen.strokeStyle = colors.fresh; // new peers: an opening ring
    fading(pen, fresh, now, FADE_MS, (node) => circle(pen, node, radius * (1.5 + (2.5 * (now - node.born)) / FADE_MS)), "born");
    pen.lineWidth = scene.nodes.size > THIN_FROM ? 1 : Math.max(1.6, radius * 0.5);
    pen.strokeStyle = colors.lost; // lost peers: a cross
    fading(pen, scene.ghosts, now, FADE_MS, (node) => cross(pen, node, radius * 1.3));
    pen.strokeStyle = colors.chosen;
    pen.lineWidth = 1.8;
    pen.beginPath();
    for (const node of [this.chosen, this.hovered]) if (node && scene.nodes.has(node.n)) circle(pen, node, radius + 4);
    pen.stroke();
  }

  /** All names if there is room, else those of the hovered and the selected peer. */
  names(pen, colors) {
    const shown = this.scene.nodes.size <= 40 ? this.scene.nodes.values() : [this.chosen, this.hovered];
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.lineJoin = "round";
    pen.lineWidth = 3;
    for (const node of shown) {
      if (!node || !this.scene.nodes.has(node.n)) continue;
      const x = node.sx + this.radius + 5;
      pen.strokeStyle = colors.back;
      pen.strokeText(node.name, x, node.sy + 0.5);
      pen.fillStyle = colors.text;
      pen.fillText(node.name, x, node.sy + 0.5);
    }
  }
}

/** Fading items in a few steps of age. All of a step are drawn in one path, which is many times faster than one by one. */
function fading(pen, items, now, fadeMs, add, since = "at") {
  if (!items.length) return;
  const byAge = Array.from({ length: AGES }, () => []);
  for (const each of items) byAge[Math.max(0, Math.min(AGES - 1, Math.floor(((now - each[since]) / fadeMs) * AGES)))].push(each);
  byAge.forEach((bunch, age) => {
    pen.globalAlpha = 1 - age / AGES;
    for (let first = 0; first < bunch.length; first += LINES_A_PATH) {
      pen.beginPath();
      for (let place = first; place < Math.min(first + LINES_A_PATH, bunch.length); place++) add(bunch[place]);
      pen.stroke();
    }
  });
  pen.globalAlpha = 1;
}

function line(pen, a, b) {
  pen.moveTo(a.sx, a.sy);
  pen.lineTo(b.sx, b.sy);
}

function circle(pen, { sx, sy }, radius) {
  pen.moveTo(sx + radius, sy);
  pen.arc(sx, sy, radius, 0, 6.2832);
}

function cross(pen, { sx, sy }, arm) {
  pen.moveTo(sx - arm, sy - arm);
  pen.lineTo(sx + arm, sy + arm);
  pen.moveTo(sx + arm, sy - arm);
  pen.lineTo(sx - arm, sy + arm);
}
