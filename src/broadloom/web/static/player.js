// The moment that is shown, and the entries up to it.
//
// A history is requested in chunks (broadloom/web/api.py), one at a time. A live source is followed in real time with a
// short delay; everything else is played at the selected speed.

const AHEAD_S = 2; // requested in advance, at normal speed
const POLL_MS = 250;
const BEHIND_S = 0.5; // delay of a live source, so that it runs smoothly
const FAR_BEHIND_S = 4; // beyond this it jumps
const RETRY_MS = 2000;

export class Player {
  constructor(source, { onWhole, onEntry, onProblem }) {
    Object.assign(this, { source, onWhole, onEntry, onProblem });
    this.isLive = source === "live";
    this.follows = this.isLive;
    this.plays = true;
    this.speed = 1;
    this.head = 0; // the moment that is shown
    this.start = 0;
    this.end = 0;
    this.began = 0; // Unix time of zero
    this.queue = [];
    this.place = 0; // in the queue
    this.next = 0;
    this.known = 0; // entries are there up to this moment
    this.requests = 0; // a newer request voids the response to an older one
    this.busy = false;
    this.requestAgain = 0; // earliest time of the next request
    this.endSeen = 0; // when the end was received
  }

  async request(what, params = {}) {
    const query = new URLSearchParams(params);
    const response = await fetch(`/data/${encodeURIComponent(this.source)}/${what}?${query}`);
    const reply = response.headers.get("content-type")?.includes("json") ? await response.json() : { problem: await response.text() };
    if (reply.problem) throw new Error(reply.problem);
    this.start = reply.start;
    this.end = reply.end;
    this.endSeen = performance.now();
    return reply;
  }

  /** Show another moment; without one, the newest. */
  async seek(at) {
    const mine = ++this.requests;
    this.busy = true;
    try {
      const reply = await this.request("snapshot", at === undefined ? {} : { at });
      if (mine !== this.requests) return;
      this.queue = [];
      this.place = 0;
      this.next = reply.next;
      this.head = this.known = reply.at;
      this.began = reply.began_s;
      this.onWhole(reply);
      this.onProblem("");
    } catch (problem) {
      if (mine === this.requests) this.failed(problem);
    } finally {
      if (mine === this.requests) this.busy = false;
    }
  }

  async more() {
    const mine = this.requests;
    this.busy = true;
    const until = this.follows ? {} : { until: this.head + AHEAD_S * Math.max(1, this.speed) };
    try {
      const reply = await this.request("changes", { since: this.next, ...until });
      if (mine !== this.requests) return;
      if (reply.is_expired) {
        this.busy = false;
        return this.seek(this.follows ? undefined : this.head);
      }
      this.queue = this.queue.slice(this.place);
      this.place = 0;
      this.queue.push(...reply.entries);
      this.next = reply.next;
      const last = this.queue.at(-1);
      const isAll = reply.next === reply.newest;
      this.known = isAll ? reply.end : Math.max(this.known, Math.min(until.until ?? reply.end, last ? last[0] : reply.end));
      if (!isAll && reply.entries.length === 0) this.known = Math.max(this.known, until.until ?? reply.end);
      this.requestAgain = performance.now() + (this.follows ? POLL_MS : 50);
      this.onProblem("");
    } catch (problem) {
      if (mine === this.requests) this.failed(problem);
    } finally {
      if (mine === this.requests) this.busy = false;
    }
  }

  failed(problem) {
    this.requestAgain = performance.now() + RETRY_MS;
    const isGone = problem instanceof TypeError; // what fetch throws without a response
    this.onProblem(isGone ? "The server does not respond. Is it still running? Retrying …" : problem.message);
  }

  /** Time passes: seconds since the last call. */
  tick(seconds) {
    const now = performance.now();
    if (this.follows) {
      const goal = this.end + (now - this.endSeen) / 1000 - BEHIND_S;
      const behind = goal - this.head;
      if (behind > FAR_BEHIND_S && !this.busy) { this.seek(); return; }
      this.head = Math.min(this.head + seconds * Math.max(0.2, 1 + 0.6 * behind), Math.max(this.known, this.head));
    } else if (this.plays) {
      this.head = Math.min(this.head + seconds * this.speed, Math.max(this.known, this.head), this.end);
      if (this.isLive && this.speed > 1 && this.head > this.end - BEHIND_S) this.follow();
      else if (!this.isLive && this.head >= this.end && this.known >= this.end) this.plays = false;
    }
    while (this.place < this.queue.length && this.queue[this.place][0] <= this.head) this.onEntry(this.queue[this.place++]);
    const isShort = this.follows || (this.plays && this.known < this.end && this.known < this.head + (AHEAD_S / 2) * Math.max(1, this.speed));
    if (isShort && this.canAsk) this.more();
  }

  get canAsk() {
    return !this.busy && performance.now() >= this.requestAgain;
  }

  follow() {
    this.follows = true;
    this.plays = true;
    this.speed = 1;
    return this.seek();
  }

  toggle() {
    if (this.follows) { this.follows = false; this.plays = false; return; }
    this.plays = !this.plays;
    if (this.plays && !this.isLive && this.head >= this.end) this.seek(this.start);
  }

  scrub(at) {
    this.follows = false;
    this.head = at;
    return this.seek(at);
  }
}
