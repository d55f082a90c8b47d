// The design review, as a component of a page: the shared view, who is here and who leads, parts, notes and polls.
// The server sends the state of the meeting (`receive`) and what moves (`moveTo`, `pointAt`), and gets what the person does.

import { ReviewCanvas } from "/static/review_canvas.js";
import { HOME, PARTS } from "/static/review_model.js";
import { template } from "/static/review_template.js";

const SHOW_MS = 40; // between two viewpoints of a leader that moves
const POINT_MS = 70;
const CLICK = 4; // pixels: a drag is longer
const COLORS = ["#0b5cad", "#a8331a", "#00704e", "#8a3ab9", "#b35900", "#0a7480", "#9c2a6b", "#4b5a1e"];

const time = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

export default {
  template,
  data() {
    return {
      tool: "look", follows: true, draft: "", place: null, replyTo: null, question: "", options: "Yes, No", start: null,
      people: [], parts: [], notes: [], measurements: [], polls: [], agenda: [], me: "", leader: "", isLeader: false,
      canTakeBack: false, isReady: false, chosen: "", hovered: "", view: "", pointer: "", saved: 0,
    };
  },
  computed: {
    names() { return Object.keys(PARTS); },
    myself() { return this.people.find((each) => each.isMe) ?? {}; },
    leaderName() { return this.people.find((each) => each.id === this.leader)?.name ?? ""; },
    threads() {
      const children = new Map();
      for (const note of this.notes) children.set(note.replyTo, [...(children.get(note.replyTo) ?? []), note]);
      const below = (id, depth) => (children.get(id) ?? []).flatMap((note) => [{ ...note, depth }, ...below(note.id, Math.min(depth + 1, 4))]);
      return below(null, 0);
    },
    pins() { return this.notes.filter((each) => each.at).map((each, index) => ({ ...each, number: index + 1 })); },
    status() {
      if (this.isLeader) return "You lead. Everyone who follows sees what you see.";
      if (!this.leader) return "Nobody leads. Take the floor to show your view to everyone.";
      return this.follows ? `${this.leaderName} leads, and you follow.` : `${this.leaderName} leads. You look around by yourself.`;
    },
    hint() {
      if (this.tool === "note") return "Click the place that the note is about.";
      if (this.tool === "measure") return this.start ? "Click the second point." : "Click the first of two points.";
      if (this.tool === "point") return "Move over the model: everyone sees where you point.";
      return "Drag to turn, shift and drag to move, scroll to zoom.";
    },
  },
  mounted() {
    this.stage = new ReviewCanvas(this.$refs.canvas);
    this.isAlive = true;
    this.shownAt = this.pointedAt = 0;
    const frame = (now) => { if (this.isAlive) { this.stage.frame(now); this.showSoon(now); requestAnimationFrame(frame); } };
    requestAnimationFrame(frame);
    this.$emit("ready");
  },
  unmounted() { this.isAlive = false; },
  methods: {
    time,
    // -- from the server
    receive(state) {
      const wasLeader = this.isLeader;
      Object.assign(this, state, { isReady: true });
      if (this.isLeader && !wasLeader) this.isMoved = true; // everyone sees what the new leader sees
      if (!this.isLeader && this.follows && state.view) this.stage.look(state.view);
      this.update();
    },
    moveTo(view) { if (this.follows && !this.isLeader) { this.stage.look(view); this.tellView(); } },
    pointAt(id, at) {
      const person = this.people.find((each) => each.id === id);
      if (!person) return;
      this.stage.pointers.set(id, { at, name: person.name, color: this.color(id), since: performance.now() });
      this.pointer = `${person.name} ${at.join(",")}`;
    },
    save(minutes) {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([minutes], { type: "text/html" }));
      link.download = "minutes.html";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
      this.saved = minutes.length;
    },
    // -- drawing
    color(id) { return COLORS[Math.max(0, this.people.findIndex((each) => each.id === id)) % COLORS.length]; },
    update() {
      this.stage.parts = this.parts;
      this.stage.hovered = this.hovered;
      this.stage.pins = this.pins.map(({ id, at, author, number }) => ({ at, label: String(number), color: this.color(author), isChosen: id === this.chosen }));
      this.stage.lines = this.measurements.map(({ start, end, distance }) => ({ start, end, label: `${distance.toLocaleString("en", { maximumFractionDigits: 0 })} mm` }));
      if (this.start) this.stage.pins.push({ at: this.start.at, label: "1", color: "#b84300" });
      if (this.place) this.stage.pins.push({ at: this.place.at, label: "…", color: this.color(this.me), isChosen: true });
      this.stage.isDirty = true;
      this.tellView();
    },
    tellView() { this.view = (this.stage.goal?.eye ?? this.stage.eye).map((each) => Math.round(each)).join(","); },
    // -- looking
    act(verb, values = {}) { this.$emit("act", { verb, ...values }); },
    steer(move) {
      if (!this.isLeader) this.follows = false;
      move(this.stage);
      this.isMoved = true;
      this.tellView();
    },
    showSoon(now) {
      if (!this.isMoved || now - this.shownAt < SHOW_MS) return;
      this.isMoved = false;
      this.shownAt = now;
      if (this.isLeader) this.act("show", this.stage.view);
    },
    follow() { this.follows = true; this.act("state"); },
    home() { this.steer((stage) => stage.look(HOME, true)); },
    down(event) { this.drag = { x: event.offsetX, y: event.offsetY, far: 0 }; this.$refs.canvas.setPointerCapture(event.pointerId); },
    move(event) {
      if (this.drag) {
        const dx = event.offsetX - this.drag.x, dy = event.offsetY - this.drag.y;
        Object.assign(this.drag, { x: event.offsetX, y: event.offsetY, far: this.drag.far + Math.hypot(dx, dy) });
        if (this.drag.far > CLICK) this.steer((stage) => (event.shiftKey || event.buttons & 2 ? stage.pan(dx, dy) : stage.orbit(dx, dy)));
        return;
      }
      const picked = this.stage.pick(event.offsetX, event.offsetY), now = performance.now();
      if ((picked?.part ?? "") !== this.hovered) { this.hovered = picked?.part ?? ""; this.update(); }
      if (this.tool === "point" && picked && now - this.pointedAt > POINT_MS) { this.pointedAt = now; this.act("point", { at: picked.at }); }
    },
    up(event) {
      const isClick = this.drag && this.drag.far <= CLICK;
      this.drag = null;
      const picked = isClick ? this.stage.pick(event.offsetX, event.offsetY) : null;
      if (!picked) return;
      if (this.tool === "note") this.beginNote(picked);
      else if (this.tool === "measure") this.measure(picked);
      else this.act("point", { at: picked.at });
    },
    wheel(event) { this.steer((stage) => stage.zoom(event.deltaY)); },
    key(event) {
      const turns = { ArrowLeft: [-24, 0], ArrowRight: [24, 0], ArrowUp: [0, 24], ArrowDown: [0, -24] }[event.key];
      const zooms = { "+": -160, "=": -160, "-": 160 }[event.key];
      if (!turns && !zooms) return;
      event.preventDefault();
      this.steer((stage) => (turns ? stage.orbit(...turns) : stage.zoom(zooms)));
    },
    // -- doing
    use(tool) { this.tool = tool; this.start = null; this.update(); },
    beginNote(picked) { this.place = picked; this.replyTo = null; this.update(); this.$nextTick(() => this.$refs.draft.focus()); },
    beginReply(note) { this.replyTo = note; this.place = null; this.chosen = note.id; this.update(); this.$nextTick(() => this.$refs.draft.focus()); },
    choose(note) { this.chosen = this.chosen === note.id ? "" : note.id; this.update(); },
    cancelNote() { this.place = this.replyTo = null; this.draft = ""; this.update(); },
    sendNote() {
      const text = this.draft.trim();
      if (!text) return;
      this.act("annotate", { part: this.replyTo?.part ?? this.place?.part ?? "model", text, at: this.place?.at ?? null, reply_to: this.replyTo?.id ?? null });
      this.cancelNote();
      this.use("look");
    },
    measure(picked) {
      if (this.start) this.act("measure", { part: picked.part, start: this.start.at, end: picked.at });
      this.start = this.start ? null : picked;
      if (!this.start) this.tool = "look";
      this.update();
    },
    toggle(name) { this.act(this.parts.includes(name) ? "unload" : "load", { part: name }); },
    loadAll() { for (const name of this.names) if (!this.parts.includes(name)) this.act("load", { part: name }); },
    ask() {
      const options = this.options.split(",").map((each) => each.trim()).filter(Boolean);
      if (this.question.trim() && options.length > 1) { this.act("open_poll", { question: this.question.trim(), options }); this.question = ""; }
    },
    share(poll, index) { const all = poll.counts.reduce((sum, each) => sum + each, 0); return all ? Math.round((100 * poll.counts[index]) / all) : 0; },
  },
};
