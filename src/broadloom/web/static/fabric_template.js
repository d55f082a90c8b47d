// Template and labels of the fabric component.

export function timeText(seconds, began, isClock) {
  if (isClock) return new Date((began + seconds) * 1000).toLocaleTimeString([], { hour12: false });
  const elapsed = Math.max(0, seconds);
  const minutes = Math.floor(elapsed / 60), rest = (elapsed - 60 * minutes).toFixed(1).padStart(4, "0");
  return `${minutes}:${rest}`;
}

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function rowsOf(stats, isCompact) {
  if (!stats) return [];
  if (isCompact) return rowsOf(stats, false).filter(({ name }) => ["Peers", "Links", "Free slots", "Partitions"].includes(name));
  const isConnected = stats.partitions === 1;
  if (!stats.sees_all) return [
    { name: "Visible peers", value: number(stats.peers), about: "this peer, its neighbors, and their neighbors" },
    { name: "Visible links", value: number(stats.links), about: "known to this peer" },
    { name: "Free slots", value: number(stats.free_slots), about: "unfilled link slots of this peer", isBad: stats.free_slots > 0 },
    { name: "Topology", value: stats.is_full_mesh ? "full mesh" : "regular", about: stats.is_full_mesh ? "every peer is linked to every other" : "every peer keeps r links" },
    { name: "Diameter (estimate)", value: number(stats.estimate), about: "longest path observed so far" },
    { name: "Missed messages", value: number(stats.missed), about: "messages reported as missed to this peer", isBad: stats.missed > 0 },
  ];
  return [
    { name: "Peers", value: number(stats.peers), about: "connected now" },
    { name: "Links", value: number(stats.links), about: "between neighbors" },
    { name: "Free slots", value: number(stats.free_slots), about: "unfilled link slots", isBad: stats.free_slots > 0 },
    { name: "Partitions", value: stats.peers ? number(stats.partitions) : "–", about: isConnected ? "connected" : "disconnected components", isBad: stats.partitions > 1 },
    { name: "Topology", value: stats.is_full_mesh === null ? "–" : stats.is_full_mesh ? "full mesh" : "regular", about: stats.is_full_mesh ? "every peer is linked to every other" : "every peer keeps r links" },
    { name: "Diameter (estimate)", value: number(stats.estimate), about: "longest path observed so far" },
    { name: "Diameter (exact)", value: number(stats.diameter), about: isConnected ? "longest shortest path" : "undefined while disconnected" },
    { name: "Missed messages", value: number(stats.missed), about: "messages reported as missed", isBad: stats.missed > 0 },
  ];
}

export function summary(stats) {
  if (!stats.sees_all) return `${stats.peers} peers and ${stats.links} links are visible.`;
  const parts = stats.partitions === 1 ? "connected" : `${stats.partitions} partitions`;
  const freeSlots = stats.free_slots ? `${stats.free_slots} free slots` : "no free slots";
  const diameter = stats.diameter === null ? "" : `, diameter ${stats.diameter}`;
  return `${stats.peers} peers, ${stats.links} links, ${parts}, ${freeSlots}${diameter}.`;
}

export const template = `
<div class="bl-fabric" :class="{ compact }" :data-nodes="nodes" :data-links="links" :data-fps="fps" :data-head="head.toFixed(2)"
     :data-end="end.toFixed(2)" :data-follows="follows" :data-plays="plays" :data-ready="ready" :data-free-slots="stats?.free_slots ?? ''"
     :data-partitions="stats?.partitions ?? ''" :data-source="source">
  <p v-if="problem" class="bl-problem" role="alert">{{ problem }}</p>
  <p class="bl-unseen" role="status" aria-live="polite">{{ spoken }}</p>
  <div class="bl-stage">
    <canvas ref="canvas" role="img" :aria-label="'Fabric with ' + nodes + ' peers and ' + links + ' links. The same data is in the table below.'"
      @pointerdown="pressed" @pointermove="moved" @pointerup="released" @pointerleave="left" @wheel="wheel"></canvas>
    <div v-if="!ready && !problem" class="bl-wait">Loading …</div>
    <div v-else-if="ready && !nodes" class="bl-wait">No peers at this moment.</div>
    <div class="bl-zoom" role="group" aria-label="Zoom">
      <button type="button" @click="zoom(1.3)" aria-label="Zoom in" title="Zoom in">+</button>
      <button type="button" @click="zoom(1 / 1.3)" aria-label="Zoom out" title="Zoom out">−</button>
      <button type="button" @click="fit" aria-label="Fit to screen" title="Fit to screen">⤢</button>
    </div>
    <ul class="bl-legend" aria-label="Legend">
      <li><i class="k-peer"></i>peer</li><li><i class="k-free-slot"></i>free slot</li><li v-if="isLive"><i class="k-paused"></i>paused</li>
      <li><i class="k-dead"></i>left or crashed</li><li><i class="k-fresh"></i>new link</li><li><i class="k-lost"></i>lost link</li>
      <li><i class="k-hop"></i>message, by hop</li>
    </ul>
    <aside v-if="chosen" class="bl-detail" aria-label="Selected peer">
      <button type="button" class="bl-close" @click="choose(null)" aria-label="Close">×</button>
      <h3>Peer {{ chosen.name }}</h3>
      <dl>
        <dt>ID</dt><dd class="bl-code">{{ chosen.id }}</dd>
        <dt v-if="chosen.view">State</dt><dd v-if="chosen.view">{{ chosen.isPaused ? 'paused' : chosen.view.state }}</dd>
        <dt v-if="chosen.view">Diameter estimate</dt><dd v-if="chosen.view">{{ chosen.view.diameter }}</dd>
        <dt>Free slots</dt><dd>{{ chosen.freeSlots || 'none' }}</dd>
        <dt v-if="chosen.missed">Missed</dt><dd v-if="chosen.missed">{{ chosen.missed }} messages</dd>
        <dt>Neighbors</dt>
        <dd><button v-for="each in chosen.near" :key="each.n" type="button" class="bl-chip" @click="chooseNumber(each.n)">{{ each.name }}</button>
          <span v-if="!chosen.near.length">none</span></dd>
      </dl>
    </aside>
  </div>
  <div class="bl-timeline" role="group" aria-label="Time">
    <button type="button" class="bl-play" @click="toggle" :aria-label="plays ? 'Pause playback' : 'Play'" :title="plays ? 'Pause playback' : 'Play'">{{ plays ? '❚❚' : '►' }}</button>
    <div class="bl-track">
      <canvas ref="overview" aria-hidden="true"></canvas>
      <input type="range" :min="start" :max="end" step="0.05" :value="head" @input="scrub" aria-label="Time" :aria-valuetext="clock">
    </div>
    <span class="bl-clock">{{ clock }}<span v-if="!isLive"> / {{ length }}</span></span>
    <label class="bl-speed"><span class="bl-unseen">Speed</span>
      <select v-model="speed" :disabled="follows">
        <option :value="0.1">0.1×</option><option :value="0.25">0.25×</option><option :value="0.5">0.5×</option><option :value="1">1×</option><option :value="2">2×</option><option :value="4">4×</option><option :value="8">8×</option>
      </select></label>
    <button v-if="isLive" type="button" class="bl-live" :class="{ on: follows }" @click="toLive" :aria-pressed="follows" title="Follow live">{{ follows ? '● Live' : 'Go live' }}</button>
  </div>
  <div class="bl-beside">
    <dl v-if="statRows.length" class="bl-stats">
      <div v-for="each in statRows" :key="each.name" :class="{ bad: each.isBad }" :title="each.about">
        <dt>{{ each.name }}</dt><dd>{{ each.value }}</dd>
      </div>
    </dl>
    <div v-if="log.length" class="bl-log">
      <h3>Event log</h3>
      <ol role="log" aria-live="polite" aria-label="Event log"><li v-for="each in log" :key="each.at + each.text"><time>{{ each.time }}</time> {{ each.text }}</li></ol>
    </div>
  </div>
  <details v-if="!compact" class="bl-alternative" @toggle="tableOpen = $event.target.open">
    <summary>Peer table</summary>
    <label class="bl-filter">Search peers <input type="search" v-model="filter" placeholder="name or ID"></label>
    <div class="bl-scroll" tabindex="0" role="region" aria-label="Table of peers">
      <table>
        <thead><tr><th scope="col">Peer</th><th scope="col">ID</th><th scope="col">Neighbors</th><th scope="col">Free slots</th><th scope="col">State</th></tr></thead>
        <tbody>
          <tr v-for="row in rows" :key="row.n">
            <th scope="row"><button type="button" class="bl-chip" @click="chooseNumber(row.n)">{{ row.name }}</button></th>
            <td class="bl-code">{{ row.id }}</td><td>{{ row.near }}</td><td>{{ row.freeSlots || '' }}</td><td>{{ row.isPaused ? 'paused' : 'connected' }}</td>
          </tr>
        </tbody>
      </table>
    </div>
    <p v-if="rowsLeft" class="bl-quiet">{{ rowsLeft }} more peers: refine the search.</p>
  </details>
</div>
`;
