// The board of a game: cells to click, or figures that are moved with keys. It emits `typed` with a cell or a key.

const KEYS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right", " ": "space", w: "w", a: "a", s: "s", d: "d" };
const PAD = [["", "up", ""], ["left", "space", "right"], ["", "down", ""]];
const SIGNS = { up: "↑", down: "↓", left: "←", right: "→", space: "●" };

export default {
  template: `
    <div class="bl-game-board" :class="{ 'bl-active': active }" :data-role="role">
      <div class="bl-grid" :style="{ '--columns': width, '--rows': rows.length }" :tabindex="cells ? -1 : 0" role="group"
           :aria-label="cells ? 'Board' : 'Board: move with the arrow keys, throw with the space bar'" @keydown="onKey">
        <template v-for="(row, y) in rows">
          <component :is="cells ? 'button' : 'div'" v-for="(cell, x) in row" :key="x + ',' + y" :type="cells ? 'button' : null"
              class="bl-cell" :class="'c-' + (cell[0] === 'player' ? 'floor' : cell[0])" :data-color="cell[0] === 'orbs' ? cell[1] : null"
              :aria-disabled="cells ? !mayTake(cell) : null" :aria-label="cells ? label(cell, x, y) : null"
              @click="cells && mayTake(cell) && $emit('typed', name(x, y))">
            <i v-for="orb in (cell[0] === 'orbs' ? cell[2] : 0)" :key="orb" class="bl-orb" :class="'o-' + Math.min(cell[2], 4) + orb"></i>
            <b v-if="cell[0] === 'orbs' && cell[1]" aria-hidden="true">{{ cell[1][0].toUpperCase() }}</b>
          </component>
        </template>
        <div v-for="each in figures" :key="each.role" class="bl-figure" :data-color="each.role" :class="{ 'bl-me': each.role === role }"
             :style="{ '--x': each.x, '--y': each.y }" :aria-label="each.role">
          <span>{{ each.role[0].toUpperCase() }}</span>
          <em aria-hidden="true">{{ "•".repeat(each.balls) }}</em>
        </div>
        <svg v-if="shot" class="bl-shot" :key="shot.join()" :viewBox="'0 0 ' + width + ' ' + rows.length" aria-hidden="true">
          <line :x1="shot[0] + .5" :y1="shot[1] + .5" :x2="shot[2] + .5" :y2="shot[3] + .5" />
        </svg>
      </div>
      <div v-if="!cells && role" class="bl-pad">
        <template v-for="line in pad"><template v-for="key in line">
          <button v-if="key" type="button" :aria-label="key === 'space' ? 'throw' : key" @click="$emit('typed', key)">{{ signs[key] }}</button>
          <span v-else></span>
        </template></template>
      </div>
    </div>`,
  props: { rows: Array, role: String, cells: Boolean, active: Boolean, shot: Array },
  emits: ["typed"],
  data() { return { pad: PAD, signs: SIGNS }; },
  computed: {
    width() { return this.rows.length ? this.rows[0].length : 0; },
    figures() {
      const found = this.rows.flatMap((row, y) => row.map((cell, x) => ({ kind: cell[0], role: cell[1], balls: cell[2], x, y })));
      return found.filter((each) => each.kind === "player").sort((one, two) => one.role.localeCompare(two.role));
    },
  },
  methods: {
    // Not `disabled`: cells that cannot be taken are not pale, and can be read with the keyboard.
    mayTake(cell) { return this.active && (cell[1] === "" || cell[1] === this.role); },
    name(x, y) { return String.fromCharCode(97 + x) + (y + 1); },
    label(cell, x, y) { return this.name(x, y) + (cell[1] ? `: ${cell[1]}, ${cell[2]}` : ": empty"); },
    onKey(event) {
      const key = KEYS[event.key];
      if (this.cells || !key || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      this.$emit("typed", key);
    },
  },
};
