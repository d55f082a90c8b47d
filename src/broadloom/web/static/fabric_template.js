// The words and the shape of the component of the fabric: what stands beside the drawing, and how it is said.

export function timeText(seconds, began, isClock) {
  if (isClock) return new Date((began + seconds) * 1000).toLocaleTimeString([], { hour12: false });
  const whole = Math.max(0, seconds);
  const minutes = Math.floor(whole / 60), rest = (whole - 60 * minutes).toFixed(1).padStart(4, "0");
  return `${minutes}:${rest}`;
}

const number = (value) => (value === null || value === undefined ? "–" : value.toLocaleString("en"));

export function figureRows(told, isCompact) {
  if (!told) return [];
  if (isCompact) return figureRows(told, false).filter(({ name }) => ["Peers", "Links", "Holes", "Parts"].includes(name));
  const isWhole = told.parts === 1;
  if (!told.sees_all) return [
    { name: "Peers in sight", value: number(told.peers), about: "this one, its neighbours, and theirs" },
    { name: "Links in sight", value: number(told.links), about: "that are known of" },
    { name: "Holes here", value: number(told.holes), about: "links that this peer lacks", isBad: told.holes > 0 },
    { name: "Regime", value: told.small ? "small" : "large", about: told.small ? "all are linked to all" : "each keeps its few links" },
    { name: "Diameter, estimated", value: number(told.estimate), about: "the furthest that anything was seen to travel" },
    { name: "Missed", value: number(told.missed), about: "messages that this peer will not get", isBad: told.missed > 0 },
  ];
  return [
    { name: "Peers", value: number(told.peers), about: "that are there at this moment" },
    { name: "Links", value: number(told.links), about: "between them" },
    { name: "Holes", value: number(told.holes), about: "links that peers lack", isBad: told.holes > 0 },
    { name: "Parts", value: told.peers ? number(told.parts) : "–", about: isWhole ? "it is whole" : "that cannot reach each other", isBad: told.parts > 1 },
    { name: "Regime", value: told.small === null ? "–" : told.small ? "small" : "large", about: told.small ? "all are linked to all" : "each keeps its few links" },
    { name: "Diameter, estimated", value: number(told.estimate), about: "the furthest that anything was seen to travel" },
    { name: "Diameter, true", value: number(told.diameter), about: isWhole ? "the longest of the shortest ways" : "none, while it is in parts" },
    { name: "Missed", value: number(told.missed), about: "messages that peers were told they will not get", isBad: told.missed > 0 },
  ];
}

export function summary(told) {
  if (!told.sees_all) return `${told.peers} peers and ${told.links} links are in sight.`;
  const parts = told.parts === 1 ? "in one part" : `in ${told.parts} parts`;
  const holes = told.holes ? `${told.holes} links are lacking` : "no link is lacking";
  const far = told.diameter === null ? "" : `, diameter ${told.diameter}`;
  return `${told.peers} peers, ${told.links} links, ${parts}, ${holes}${far}.`;
}

export const template = `
<div class="w-fabric" :class="{ compact }" :data-nodes="nodes" :data-links="links" :data-fps="fps" :data-head="head.toFixed(2)"
     :data-end="end.toFixed(2)" :data-follows="follows" :data-plays="plays" :data-ready="ready" :data-holes="figures?.holes ?? ''"
     :data-parts="figures?.parts ?? ''" :data-source="source">
  <p v-if="problem" class="w-problem" role="alert">{{ problem }}</p>
  <p class="w-unseen" role="status" aria-live="polite">{{ spoken }}</p>
  <div class="w-stage">
    <canvas ref="canvas" role="img" :aria-label="'Drawing of the fabric: ' + nodes + ' peers and ' + links + ' links. The same is below as a table.'"
      @pointerdown="pressed" @pointermove="moved" @pointerup="released" @pointerleave="left" @wheel="wheel"></canvas>
    <div v-if="!ready && !problem" class="w-wait">Drawing …</div>
    <div class="w-zoom" role="group" aria-label="Size of the drawing">
      <button type="button" @click="zoom(1.3)" aria-label="Larger" title="Larger">+</button>
      <button type="button" @click="zoom(1 / 1.3)" aria-label="Smaller" title="Smaller">−</button>
      <button type="button" @click="fit" aria-label="Show all" title="Show all">⤢</button>
    </div>
    <ul class="w-legend" aria-label="Signs of the drawing">
      <li><i class="k-peer"></i>peer</li><li><i class="k-hole"></i>lacks a link</li><li v-if="isLive"><i class="k-frozen"></i>frozen</li>
      <li><i class="k-dead"></i>gone</li><li><i class="k-fresh"></i>new link</li><li><i class="k-lost"></i>lost link</li>
      <li><i class="k-hop"></i>message, by hop</li>
    </ul>
    <aside v-if="chosen" class="w-detail" aria-label="Chosen peer">
      <button type="button" class="w-close" @click="choose(null)" aria-label="Close">×</button>
      <h3>Peer {{ chosen.name }}</h3>
      <dl>
        <dt>Id</dt><dd class="w-code">{{ chosen.id }}</dd>
        <dt v-if="chosen.view">State</dt><dd v-if="chosen.view">{{ chosen.frozen ? 'frozen' : chosen.view.state }}</dd>
        <dt v-if="chosen.view">Its estimate</dt><dd v-if="chosen.view">diameter {{ chosen.view.diameter }}</dd>
        <dt>Lacks</dt><dd>{{ chosen.lacks ? chosen.lacks + (chosen.lacks === 1 ? ' link' : ' links') : 'nothing' }}</dd>
        <dt v-if="chosen.missed">Missed</dt><dd v-if="chosen.missed">{{ chosen.missed }} messages</dd>
        <dt>Linked to</dt>
        <dd><button v-for="each in chosen.near" :key="each.n" type="button" class="w-chip" @click="chooseNumber(each.n)">{{ each.name }}</button>
          <span v-if="!chosen.near.length">nobody</span></dd>
      </dl>
    </aside>
  </div>
  <div class="w-timeline" role="group" aria-label="Time">
    <button type="button" class="w-play" @click="toggle" :aria-label="plays ? 'Pause' : 'Play'" :title="plays ? 'Pause' : 'Play'">{{ plays ? '❚❚' : '►' }}</button>
    <div class="w-track">
      <canvas ref="outline" aria-hidden="true"></canvas>
      <input type="range" :min="start" :max="end" step="0.05" :value="head" @input="scrub" aria-label="Moment that is shown" :aria-valuetext="clock">
    </div>
    <span class="w-clock">{{ clock }}<span v-if="!isLive"> / {{ length }}</span></span>
    <label class="w-speed"><span class="w-unseen">Speed</span>
      <select v-model="speed" :disabled="follows">
        <option :value="0.1">0.1×</option><option :value="0.25">0.25×</option><option :value="0.5">0.5×</option><option :value="1">1×</option><option :value="2">2×</option><option :value="4">4×</option><option :value="8">8×</option>
      </select></label>
    <button v-if="isLive" type="button" class="w-live" :class="{ on: follows }" @click="toLive" :aria-pressed="follows" title="Follow what happens now">{{ follows ? '● Live' : 'Go live' }}</button>
  </div>
  <div class="w-beside">
    <dl v-if="rowsOfFigures.length" class="w-figures">
      <div v-for="each in rowsOfFigures" :key="each.name" :class="{ bad: each.isBad }" :title="each.about">
        <dt>{{ each.name }}</dt><dd>{{ each.value }}</dd>
      </div>
    </dl>
    <div v-if="told.length" class="w-told">
      <h3>What happened</h3>
      <ol role="log" aria-live="polite" aria-label="What happened"><li v-for="each in told" :key="each.at + each.text"><time>{{ each.time }}</time> {{ each.text }}</li></ol>
    </div>
  </div>
  <details v-if="!compact" class="w-alternative" @toggle="tableOpen = $event.target.open">
    <summary>The peers as a table</summary>
    <label class="w-filter">Find a peer <input type="search" v-model="filter" placeholder="name or id"></label>
    <div class="w-scroll" tabindex="0" role="region" aria-label="Table of peers">
      <table>
        <thead><tr><th scope="col">Peer</th><th scope="col">Id</th><th scope="col">Linked to</th><th scope="col">Lacks</th><th scope="col">State</th></tr></thead>
        <tbody>
          <tr v-for="row in rows" :key="row.n">
            <th scope="row"><button type="button" class="w-chip" @click="chooseNumber(row.n)">{{ row.name }}</button></th>
            <td class="w-code">{{ row.id }}</td><td>{{ row.near }}</td><td>{{ row.lacks || '' }}</td><td>{{ row.frozen ? 'frozen' : 'there' }}</td>
          </tr>
        </tbody>
      </table>
    </div>
    <p v-if="rowsLeft" class="w-quiet">And {{ rowsLeft }} more: use the field to find them.</p>
  </details>
</div>
`;
