// The fabric over time, as a component of a page: drawing, timeline, figures, details of a peer, and the same as a table.

import { Drawing } from "/static/graph_canvas.js";
import { Overview } from "/static/overview.js";
import { Player } from "/static/player.js";
import { Scene } from "/static/scene.js";
import { rowsOf, summary, template, timeText } from "/static/fabric_template.js";

const COUNTS_MS = 250; // figures of the drawing itself
const STATS_MS = 1000; // figures that the server computes
const OVERVIEW_MS = 5000;
const SPEAK_MS = 6000; // interval between announcements to screen readers
const SCRUB_MS = 60; // delay before another moment is requested
const MANY = 400; // peers: from here on the layout moves on in every second frame only
const ROWS_MAX = 300; // of the table

export default {
  template,
  props: { source: String, compact: Boolean },
  data() {
    return {
      problem: "", plays: true, follows: this.source === "live", speed: 1, head: 0, start: 0, end: 0, began: 0,
      stats: null, log: [], chosen: null, spoken: "", tableOpen: false, filter: "", rows: [], rowsLeft: 0,
      nodes: 0, links: 0, fps: 0, ready: false,
    };
  },
  computed: {
    isLive() { return this.source === "live"; },
    clock() { return timeText(this.head, this.began, this.isLive); },
    length() { return timeText(this.end - this.start, 0, false); },
    statRows() { return rowsOf(this.stats, this.compact); },
  },
  watch: {
    speed(value) { if (this.player) { this.player.speed = Number(value); if (this.follows && Number(value) !== 1) this.player.follows = false; } },
    tableOpen() { this.fillTable(); },
    filter() { this.fillTable(); },
  },
  mounted() {
    this.scene = new Scene();
    this.drawing = new Drawing(this.$refs.canvas, this.scene);
    this.overview = new Overview(this.$refs.overview);
    this.player = new Player(this.source, {
      onWhole: (snapshot) => this.onWhole(snapshot),
      onEntry: (entry) => this.scene.apply(entry, performance.now()),
      onProblem: (text) => { if (this.problem !== text) this.problem = text; },
    });
    this.times = { frame: 0, counts: 0, stats: 0, overview: 0, speak: 0, frames: 0, since: performance.now() };
    this.isAlive = true;
    requestAnimationFrame((now) => this.frame(now));
  },
  unmounted() { this.isAlive = false; },
  methods: {
    onWhole(snapshot) {
      this.scene.load(snapshot);
      if (!this.ready) { // settled before it is seen, so that it does not explode onto the page
        const until = performance.now() + 300;
        for (let step = 0; step < 150 && performance.now() < until; step++) this.scene.layout.step();
        this.drawing.resize();
        this.drawing.fit(1);
        this.nodes = this.scene.nodes.size;
        this.links = this.scene.linked;
        this.ready = true;
      }
      if (this.chosen) this.choose(this.scene.nodes.get(this.chosen.n) ?? null);
    },
    frame(now) {
      if (!this.isAlive) return;
      const times = this.times;
      const seconds = Math.min(0.25, (now - (times.frame || now)) / 1000);
      times.frame = now;
      times.frames++;
      if (this.ready) {
        this.player.tick(seconds);
        const clock = performance.now();
        this.scene.tidy(clock);
        if (times.frames % (this.nodes > MANY ? 2 : 1) === 0) this.scene.layout.step();
        this.drawing.resize();
        if (this.drawing.fits) this.drawing.fit();
        this.drawing.drawIfNeeded(clock);
      } else if (this.player.canAsk) this.player.seek(this.isLive ? undefined : 0); // the first request failed
      if (now - times.counts > COUNTS_MS) this.updateCounts(now);
      requestAnimationFrame((next) => this.frame(next));
    },
    updateCounts(now) {
      const { player, scene, times } = this;
      times.counts = now;
      Object.assign(this, { plays: player.plays, follows: player.follows, start: player.start, end: player.end, began: player.began });
      if (!this.isScrubbing) this.head = player.head;
      this.nodes = scene.nodes.size;
      this.links = scene.linked;
      if (scene.log.length !== this.log.length || scene.log[0] !== this.logFirst) {
        this.logFirst = scene.log[0];
        this.log = scene.log.slice(0, this.compact ? 4 : 8).map(({ at, text }) => ({ at, text, time: timeText(at, this.began, this.isLive) }));
      }
      if (now - times.since > 1000) {
        this.fps = Math.round((times.frames * 1000) / (now - times.since));
        times.frames = 0;
        times.since = now;
      }
      if (now - times.stats > STATS_MS && this.ready) { times.stats = now; this.requestStats(now); }
      if (now - times.overview > OVERVIEW_MS || times.overview === 0) { times.overview = now; this.requestOverview(); }
      this.overview.mark((this.head - this.start) / Math.max(1e-6, this.end - this.start));
      if (this.chosen) this.detail(this.scene.nodes.get(this.chosen.n));
      if (this.tableOpen) this.fillTable();
    },
    async requestStats(now) {
      try {
        const peer = this.chosen ? { peer: this.chosen.n } : {};
        const reply = await this.player.request("stats", { at: this.head.toFixed(3), ...peer });
        this.stats = reply.stats;
        this.view = reply.peer;
        if (now - this.times.speak > SPEAK_MS) { this.times.speak = now; this.spoken = summary(reply.stats); }
      } catch { /* the player reports it */ }
    },
    async requestOverview() {
      try { this.overview.draw(await this.player.request("overview")); } catch { /* as above */ }
    },
    // -- the timeline
    scrub(event) {
      const at = Number(event.target.value);
      this.isScrubbing = true;
      this.head = at;
      this.follows = false;
      clearTimeout(this.scrubTimer);
      this.scrubTimer = setTimeout(async () => {
        await this.player.scrub(at);
        this.isScrubbing = false;
        this.times.stats = 0;
      }, SCRUB_MS);
    },
    toggle() { this.player.toggle(); this.updateCounts(performance.now()); },
    toLive() { this.speed = 1; this.player.follow(); },
    // -- peers
    at(event) { const box = this.$refs.canvas.getBoundingClientRect(); return { x: event.clientX - box.left, y: event.clientY - box.top }; },
    pressed(event) { this.drag = { x: event.clientX, y: event.clientY, moved: false, id: event.pointerId }; },
    moved(event) {
      const drag = this.drag;
      if (drag && event.pointerType === "mouse" && event.buttons & 1) {
        const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
        if (drag.moved || Math.hypot(dx, dy) > 4) {
          Object.assign(drag, { moved: true, x: event.clientX, y: event.clientY });
          this.drawing.fits = false;
          this.drawing.x -= dx / this.drawing.scale;
          this.drawing.y -= dy / this.drawing.scale;
        }
        return;
      }
      this.drawing.hovered = this.drawing.find(this.at(event));
      this.$refs.canvas.style.cursor = this.drawing.hovered ? "pointer" : "default";
    },
    released(event) {
      if (this.drag && !this.drag.moved) this.choose(this.drawing.find(this.at(event), event.pointerType === "mouse" ? 14 : 24));
      this.drag = null;
    },
    left() { this.drawing.hovered = null; this.drag = null; },
    wheel(event) { if (event.ctrlKey || event.metaKey || event.shiftKey || this.drawing.fits === false) { event.preventDefault(); this.drawing.zoom(Math.exp(-event.deltaY / 400), this.at(event)); } },
    zoom(by) { this.drawing.zoom(by); },
    fit() { this.drawing.fits = true; },
    choose(node) {
      this.drawing.chosen = node;
      this.view = null;
      this.detail(node);
      this.times.stats = 0;
    },
    chooseNumber(n) { this.choose(this.scene.nodes.get(n) ?? null); },
    detail(node) {
      if (!node) { this.chosen = null; this.drawing.chosen = null; return; }
      const near = [...node.near].map((n) => this.scene.nodes.get(n)).filter(Boolean);
      const freeSlots = this.scene.peerStats?.[3]?.find(([n]) => n === node.n)?.[1] ?? 0;
      this.chosen = {
        n: node.n, name: node.name, id: node.id, missed: node.missed ?? 0, freeSlots,
        isPaused: Boolean(this.scene.peerStats?.[5]?.includes(node.n)),
        near: near.map(({ n, name }) => ({ n, name })), view: this.view ?? null,
      };
    },
    fillTable() {
      if (!this.tableOpen) return;
      const freeSlots = new Map(this.scene.peerStats?.[3] ?? []), paused = new Set(this.scene.peerStats?.[5] ?? []);
      const wanted = this.filter.trim().toLowerCase();
      const found = [...this.scene.nodes.values()].filter((each) => !wanted || each.name.toLowerCase().includes(wanted) || each.id.includes(wanted));
      this.rowsLeft = Math.max(0, found.length - ROWS_MAX);
      this.rows = found.slice(0, ROWS_MAX).map((each) => ({
        n: each.n, name: each.name, id: each.id, freeSlots: freeSlots.get(each.n) ?? 0, isPaused: paused.has(each.n),
        near: [...each.near].map((n) => this.scene.nodes.get(n)?.name).filter(Boolean).join(", "),
      }));
    },
  },
};
