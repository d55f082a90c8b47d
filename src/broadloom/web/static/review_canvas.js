// Draws the parts that are loaded, as flat shaded faces from back to front, with pins, pointers and measurements on top.

import { HOME, PARTS } from "/static/review_model.js";

const FIELD = 1 / Math.tan((19 * Math.PI) / 180); // half of the field of view
const NEAR = 60;
const EASE = 0.28; // share of the way to the leader's viewpoint in each frame
const FADE_MS = 500; // lifetime of a pointer
const LIGHT = [-0.42, -0.5, 0.76];
const TURN = 0.006, ZOOM = 1.0012;

const minus = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => { const length = Math.hypot(...a) || 1; return a.map((each) => each / length); };
const mix = (a, b, share) => a.map((each, axis) => each + (b[axis] - each) * share);

export class ReviewCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.eye = [...HOME.eye];
    this.target = [...HOME.target];
    this.goal = null; // the viewpoint to ease to
    this.parts = [];
    this.pins = []; // { at, label, color, isChosen }
    this.lines = []; // { start, end, label }
    this.pointers = new Map(); // by participant: { at, name, color, since }
    this.hovered = "";
    this.isDirty = true;
    this.faces = [];
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  get view() { return { eye: this.eye, target: this.target }; }

  look(view, atOnce = false) {
    if (atOnce || this.isStill) { this.eye = [...view.eye]; this.target = [...view.target]; this.goal = null; }
    else this.goal = view;
    this.isDirty = true;
  }

  orbit(dx, dy) {
    const arm = minus(this.eye, this.target), length = Math.hypot(...arm);
    const turn = Math.atan2(arm[1], arm[0]) - dx * TURN;
    const tilt = Math.max(-1.45, Math.min(1.45, Math.asin(arm[2] / length) + dy * TURN));
    this.eye = [0, 1, 2].map((axis) => this.target[axis] + length * [Math.cos(tilt) * Math.cos(turn), Math.cos(tilt) * Math.sin(turn), Math.sin(tilt)][axis]);
    this.moved();
  }

  pan(dx, dy) {
    const { right, up } = this.axes(), scale = Math.hypot(...minus(this.eye, this.target)) / (FIELD * this.high * 0.5);
    const by = [0, 1, 2].map((axis) => (-right[axis] * dx + up[axis] * dy) * scale);
    this.eye = this.eye.map((each, axis) => each + by[axis]);
    this.target = this.target.map((each, axis) => each + by[axis]);
    this.moved();
  }

  zoom(delta) {
    const arm = minus(this.eye, this.target), length = Math.max(500, Math.min(40000, Math.hypot(...arm) * ZOOM ** delta));
    this.eye = unit(arm).map((each, axis) => this.target[axis] + each * length);
    this.moved();
  }

  moved() { this.goal = null; this.isDirty = true; }

  axes() {
    const forward = unit(minus(this.target, this.eye)), right = unit(cross(forward, [0, 0, 1]));
    return { forward, right, up: cross(right, forward) };
  }

  resize() {
    const ratio = Math.min(2, window.devicePixelRatio || 1), { clientWidth: wide, clientHeight: high } = this.canvas;
    if (this.canvas.width !== Math.round(wide * ratio) || this.canvas.height !== Math.round(high * ratio)) {
      this.canvas.width = Math.round(wide * ratio);
      this.canvas.height = Math.round(high * ratio);
      this.isDirty = true;
    }
    Object.assign(this, { wide, high, ratio });
  }

  frame(now) {
    this.resize();
    if (this.goal) {
      this.eye = mix(this.eye, this.goal.eye, EASE);
      this.target = mix(this.target, this.goal.target, EASE);
      this.isDirty = true;
      if (Math.hypot(...minus(this.eye, this.goal.eye)) < 1) this.look(this.goal, true);
    }
    for (const [id, pointer] of this.pointers) if (now - pointer.since > FADE_MS) { this.pointers.delete(id); this.isDirty = true; }
    if (this.isDirty || this.pointers.size) this.draw(now);
    this.isDirty = false;
  }

  project(point, axes) {
    const arm = minus(point, this.eye), depth = dot(arm, axes.forward);
    if (depth < NEAR) return null;
    const scale = (FIELD * this.high * 0.5) / depth;
    return [this.wide / 2 + dot(arm, axes.right) * scale, this.high / 2 - dot(arm, axes.up) * scale, depth];
  }

  draw(now) {
    const { context } = this, axes = this.axes(), isDark = document.body.classList.contains("body--dark");
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    const sky = context.createLinearGradient(0, 0, 0, this.high);
    sky.addColorStop(0, isDark ? "#1b2431" : "#fdfefe");
    sky.addColorStop(1, isDark ? "#0f151e" : "#dde6f0");
    context.fillStyle = sky;
    context.fillRect(0, 0, this.wide, this.high);
    this.floor(axes, isDark);
    this.faces = [];
    for (const name of this.parts) {
      const part = PARTS[name];
      if (!part) continue;
      for (const face of part.faces) {
        const corners = face.corners.map((each) => this.project(each, axes));
        if (corners.includes(null)) continue;
        const cutout = face.cutout?.map((each) => this.project(each, axes));
        this.faces.push({ name, part, face, corners, cutout: cutout?.includes(null) ? null : cutout, far: Math.hypot(...minus(face.middle, this.eye)) });
      }
    }
    this.faces.sort((a, b) => b.far - a.far);
    context.lineJoin = "round";
    for (const each of this.faces) this.paint(each, isDark);
    for (const line of this.lines) this.dimension(line, axes, isDark);
    for (const pin of this.pins) this.pin(pin, axes);
    for (const pointer of this.pointers.values()) this.pointer(pointer, axes, now);
  }

  /** A grid under the model, which shows where down is. */
  floor(axes, isDark) {
    const { context } = this, level = -1500;
    context.strokeStyle = isDark ? "rgba(150,175,210,.12)" : "rgba(70,95,130,.13)";
    context.lineWidth = 1;
    context.beginPath();
    for (let each = -3; each <= 9; each++) for (const [from, to] of [[[each * 1000, -3000], [each * 1000, 9000]], [[-3000, each * 1000], [9000, each * 1000]]]) {
      const ends = [from, to].map(([x, y]) => this.project([x, y, level], axes));
      if (!ends.includes(null)) { context.moveTo(ends[0][0], ends[0][1]); context.lineTo(ends[1][0], ends[1][1]); }
    }
    context.stroke();
  }

  paint({ name, part, face, corners, cutout }, isDark) {
    const { context } = this, shade = Math.abs(dot(face.normal, unit(LIGHT)));
    const isHovered = name === this.hovered, light = part.light * (0.56 + 0.56 * shade) + (isHovered ? 9 : 0);
    context.beginPath();
    for (const ring of cutout ? [corners, cutout] : [corners]) {
      ring.forEach(([x, y], each) => (each ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.closePath();
    }
    context.fillStyle = `hsl(${part.hue} ${part.saturation + (isHovered ? 22 : 0)}% ${isDark ? light * 0.92 : light}% / ${part.alpha})`;
    context.fill("evenodd");
    context.lineWidth = part.alpha < 0.5 ? 0.5 : 0.8;
    context.strokeStyle = `hsl(${part.hue} ${part.saturation}% ${isDark ? 78 : 22}% / ${part.alpha < 0.5 ? 0.28 : 0.34})`;
    context.stroke();
  }

  label(text, x, y, back, color = "#fff") {
    const { context } = this;
    context.font = "600 12px system-ui, sans-serif";
    const wide = context.measureText(text).width + 14;
    context.fillStyle = back;
    context.beginPath();
    context.roundRect(x - wide / 2, y - 11, wide, 22, 11);
    context.fill();
    context.fillStyle = color;
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(text, x, y + 0.5);
  }

  pin({ at, label, color, isChosen }, axes) {
    const place = this.project(at, axes);
    if (!place) return;
    const { context } = this, [x, y] = place, high = isChosen ? 34 : 26;
    context.strokeStyle = color;
    context.lineWidth = 2;
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(x, y - high + 10);
    context.stroke();
    context.fillStyle = color;
    context.beginPath();
    context.arc(x, y, 3.5, 0, 2 * Math.PI);
    context.fill();
    if (isChosen) { context.lineWidth = 4; context.strokeStyle = "rgba(255,255,255,.9)"; context.beginPath(); context.arc(x, y - high, 14, 0, 2 * Math.PI); context.stroke(); }
    this.label(label, x, y - high, color);
  }

  pointer({ at, name, color, since }, axes, now) {
    const place = this.project(at, axes);
    if (!place) return;
    const { context } = this, [x, y] = place, age = (now - since) / FADE_MS;
    context.globalAlpha = Math.max(0, 1 - age ** 3);
    context.strokeStyle = color;
    context.lineWidth = 2.5;
    for (const radius of [5, 10 + 8 * age]) { context.beginPath(); context.arc(x, y, radius, 0, 2 * Math.PI); context.stroke(); }
    this.label(name, x, y + 24, color);
    context.globalAlpha = 1;
  }

  dimension({ start, end, label }, axes, isDark) {
    const [from, to] = [start, end].map((each) => this.project(each, axes));
    if (!from || !to) return;
    const { context } = this, color = isDark ? "#ffb638" : "#b84300";
    context.strokeStyle = context.fillStyle = color;
    context.lineWidth = 1.8;
    context.setLineDash([6, 4]);
    context.beginPath();
    context.moveTo(from[0], from[1]);
    context.lineTo(to[0], to[1]);
    context.stroke();
    context.setLineDash([]);
    for (const [x, y] of [from, to]) { context.beginPath(); context.arc(x, y, 3, 0, 2 * Math.PI); context.fill(); }
    this.label(label, (from[0] + to[0]) / 2, (from[1] + to[1]) / 2 - 14, color, isDark ? "#1b1206" : "#fff");
  }

  /** The part and the point of it under a place of the canvas, or null. Solid parts come before see-through ones. */
  pick(x, y) {
    let found = null;
    for (const each of this.faces) {
      if (!inside(x, y, each.corners) || (each.cutout && inside(x, y, each.cutout))) continue;
      if (!found || each.part.alpha >= 0.5 || found.part.alpha < 0.5) found = each;
    }
    if (!found) return null;
    const { forward, right, up } = this.axes(), scale = FIELD * this.high * 0.5;
    const ray = [0, 1, 2].map((axis) => forward[axis] + (right[axis] * (x - this.wide / 2)) / scale - (up[axis] * (y - this.high / 2)) / scale);
    const { normal, middle } = found.face, slope = dot(ray, normal);
    const share = Math.abs(slope) > 1e-6 ? dot(minus(middle, this.eye), normal) / slope : 0;
    const hit = share > 0 ? this.eye.map((each, axis) => each + ray[axis] * share) : middle;
    const at = Math.hypot(...minus(hit, middle)) < 2500 ? hit : middle;
    return { part: found.name, at: at.map((each) => Math.round(each * 10) / 10) };
  }
}

function inside(x, y, ring) {
  let isInside = false;
  for (let i = 0, j = ring.length - 1; i < ring.length; j = i++) {
    const [xi, yi] = ring[i], [xj, yj] = ring[j];
    if (yi > y !== yj > y && x < ((xj - xi) * (y - yi)) / (yj - yi) + xi) isInside = !isInside;
  }
  return isInside;
}
