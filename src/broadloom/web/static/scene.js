// What is drawn at this moment: peers, links, and recent events that fade.
//
// Entries are those of broadloom/web/snapshot.py: [seconds, letter, ...].

import { Layout } from "/static/force_layout.js";

export const FADE_MS = 1400; // of added and removed peers and links
export const RIPPLE_MS = 900; // of one hop of a message
const RIPPLES_MAX = 4000;
const LOG_MAX = 40;

const key = (a, b) => (a < b ? a * 4194304 + b : b * 4194304 + a);

export class Scene {
  constructor() {
    this.nodes = new Map(); // by running number
    this.links = new Map(); // by both ends
    this.ghosts = []; // peers that just left
    this.lost = []; // links that just went down
    this.ripples = [];
    this.log = []; // sentences, newest first
    this.peerStats = null;
    this.version = 0; // increases when peers or links change
    this.layout = new Layout(this);
  }

  /** A snapshot of another moment: peers in both keep their position. */
  load(answer) {
    this.version++;
    const peers = new Map(answer.peers.map(([n, name, id]) => [n, { name, id }]));
    for (const n of [...this.nodes.keys()]) if (!peers.has(n)) this.nodes.delete(n);
    this.links.clear();
    for (const node of this.nodes.values()) node.near.clear();
    const fresh = [];
    for (const [n, { name, id }] of peers) if (!this.nodes.has(n)) fresh.push(this.node(n, name, id));
    for (const [a, b] of answer.links) this.link(a, b, 0);
    for (const node of fresh) this.layout.place(node);
    this.ghosts = []; this.lost = []; this.ripples = [];
    for (const node of this.nodes.values()) node.glow = 0;
    this.peerStats = answer.peer_stats;
    this.log = answer.log.map(([at, , text]) => ({ at, text })).reverse();
    this.layout.warm(fresh.length * 4 > this.nodes.size ? 1 : 0.3);
  }

  node(n, name, id) {
    const node = { n, name, id, near: new Set(), x: 0, y: 0, vx: 0, vy: 0, born: 0, glow: 0, hops: 0 };
    for (const link of this.links.values()) {
      if (link.a === n) node.near.add(link.b);
      else if (link.b === n) node.near.add(link.a);
    }
    this.version++;
    this.nodes.set(n, node);
    return node;
  }

  link(a, b, born) {
    this.version++;
    this.links.set(key(a, b), { a, b, born });
    this.nodes.get(a)?.near.add(b);
    this.nodes.get(b)?.near.add(a);
  }

  apply(entry, now) {
    switch (entry[1]) {
      case "h": return this.hop(entry, now);
      case "u":
        if (!this.links.has(key(entry[2], entry[3]))) this.link(entry[2], entry[3], now);
        return this.layout.warm(0.12);
      case "d": return this.unlink(entry[2], entry[3], now);
      case "c":
        if (!this.nodes.has(entry[2])) {
          const node = this.node(entry[2], entry[3], entry[4]);
          node.born = now;
          this.layout.place(node);
          this.layout.warm(0.2);
        }
        return;
      case "w": return this.went(entry[2], entry[3], now);
      case "s": {
        const author = this.nodes.get(entry[2]);
        if (author) { author.glow = now; author.hops = 0; }
        return;
      }
      case "m": {
        const peer = this.nodes.get(entry[2]);
        if (peer) peer.missed = (peer.missed ?? 0) + entry[5] - entry[4] + 1;
        return;
      }
      case "t":
        this.log.unshift({ at: entry[0], text: entry[2] });
        this.log.length = Math.min(this.log.length, LOG_MAX);
        return;
      case "f": this.peerStats = entry;
    }
  }

  hop([, , author, sequence, source, peer, hops], now) {
    const from = this.nodes.get(source), to = this.nodes.get(peer);
    if (!to) return;
    to.glow = now;
    to.hops = hops;
    if (from && this.ripples.length < RIPPLES_MAX) this.ripples.push({ from, to, hops, at: now });
  }

  unlink(a, b, now) {
    if (!this.links.delete(key(a, b))) return;
    this.version++;
    const one = this.nodes.get(a), other = this.nodes.get(b);
    one?.near.delete(b);
    other?.near.delete(a);
    const ends = [one ?? this.ghost(a), other ?? this.ghost(b)];
    if (ends[0] && ends[1]) this.lost.push({ from: ends[0], to: ends[1], at: now });
    this.layout.warm(0.15);
  }

  ghost(n) {
    return this.ghosts.find((each) => each.n === n);
  }

  went(n, how, now) {
    const node = this.nodes.get(n);
    if (!node) return;
    this.version++;
    this.nodes.delete(n);
    this.ghosts.push(Object.assign(node, { at: now, how }));
    this.layout.warm(0.25);
  }

  /** Drop what has faded. */
  tidy(now) {
    this.ghosts = this.ghosts.filter((each) => now - each.at < FADE_MS);
    this.lost = this.lost.filter((each) => now - each.at < FADE_MS);
    this.ripples = this.ripples.filter((each) => now - each.at < RIPPLE_MS);
  }

  /** Links that can be drawn. */
  get linked() {
    let count = 0;
    for (const { a, b } of this.links.values()) if (this.nodes.has(a) && this.nodes.has(b)) count++;
    return count;
  }
}
