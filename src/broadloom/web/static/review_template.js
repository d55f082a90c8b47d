// Template of the review component.

export const template = `
<div class="bl-review" :data-ready="isReady" :data-leader="leaderName" :data-leads="isLeader" :data-parts="parts.length" :data-notes="notes.length"
    :data-follows="follows" :data-view="view" :data-pointer="pointer" :data-saved="saved">
  <div class="bl-review-bar">
    <p class="bl-review-status" role="status" :class="{ on: isLeader }"><i v-if="leader" :style="{ background: color(leader) }"></i>{{ status }}</p>
    <button v-if="!isLeader && !myself.place" type="button" class="main" id="do-floor" @click="act('request_floor')">{{ leader ? "Ask for the floor" : "Take the floor" }}</button>
    <button v-if="myself.place" type="button" @click="act('release_floor')">Leave the queue ({{ myself.place }})</button>
    <button v-if="isLeader" type="button" class="main" id="do-release" @click="act('release_floor')">Give the floor back</button>
    <button v-if="canTakeBack" type="button" id="do-take-back" @click="act('take_back')">Take it back</button>
    <button v-if="!isLeader && !follows" type="button" id="do-follow" @click="follow">Follow {{ leaderName || "again" }}</button>
    <button v-if="!isLeader && follows && leader" type="button" id="do-detach" @click="follows = false">Look around</button>
    <button type="button" id="do-hand" :aria-pressed="!!myself.hand" @click="act('raise_hand', { is_up: !myself.hand })">{{ myself.hand ? "Lower" : "Raise" }} hand</button>
    <button type="button" id="do-minutes" @click="act('minutes')">Minutes</button>
  </div>
  <div class="bl-review-stage">
    <canvas ref="canvas" tabindex="0" role="img" aria-label="Shared view of the model. Arrow keys turn it, plus and minus zoom." :data-tool="tool"
      @pointerdown="down" @pointermove="move" @pointerup="up" @pointerleave="hovered = ''" @wheel.prevent="wheel" @contextmenu.prevent @keydown="key"></canvas>
    <div class="bl-review-tools" role="group" aria-label="Tools">
      <button v-for="[name, text] in [['look', 'Look'], ['point', 'Point'], ['note', 'Note'], ['measure', 'Measure']]" :key="name" type="button"
        :id="'tool-' + name" :aria-pressed="tool === name" @click="use(name)">{{ text }}</button>
      <button type="button" @click="home">Whole wing</button>
    </div>
    <p class="bl-review-hint"><b v-if="hovered">{{ hovered }}</b> {{ hint }}</p>
    <div v-if="isReady && !parts.length" class="bl-review-empty">
      <p>No part is loaded yet.</p>
      <button type="button" class="main" id="do-load-all" @click="loadAll">Load the wing for everyone</button>
    </div>
    <form v-if="place || replyTo" class="bl-review-note" @submit.prevent="sendNote">
      <label for="review-draft">{{ replyTo ? "Reply to " + replyTo.name : "Note at " + place.part }}</label>
      <input id="review-draft" ref="draft" v-model="draft" maxlength="600" autocomplete="off" @keydown.esc="cancelNote">
      <button type="submit" class="main" id="do-note">Post</button>
      <button type="button" @click="cancelNote">Cancel</button>
    </form>
  </div>
  <aside class="bl-review-side">
    <section class="bl-section"><h2>People</h2>
      <ul class="bl-review-people">
        <li v-for="each in people" :key="each.id"><i :style="{ background: color(each.id) }"></i>
          <span :class="{ me: each.isMe }">{{ each.name }}{{ each.isMe ? " (you)" : "" }}</span>
          <em v-if="each.hand" class="hand">hand up</em>
          <em v-if="each.id === leader" class="leads">leads</em>
          <em v-else-if="each.place">{{ each.place }}. in the queue</em>
          <button v-if="isLeader && !each.isMe" type="button" @click="act('hand_over', { to: each.id })" :aria-label="'Hand the floor to ' + each.name">hand over</button>
        </li>
      </ul>
    </section>
    <section v-if="agenda.length" class="bl-section"><h2>Agenda</h2><ol class="bl-review-agenda"><li v-for="each in agenda" :key="each">{{ each }}</li></ol></section>
    <section class="bl-section"><h2>Notes</h2>
      <p v-if="!threads.length" class="bl-quiet bl-small">Choose Note and click a place of the model.</p>
      <ol class="bl-review-notes">
        <li v-for="note in threads" :key="note.id" :style="{ '--depth': note.depth, '--tone': color(note.author) }" :class="{ chosen: note.id === chosen }">
          <p><b>{{ note.name }}</b> <span class="bl-quiet bl-small">{{ note.depth ? "" : note.part }} {{ time(note.atMs) }}</span>
            <button v-if="note.at" type="button" class="pin" @click="choose(note)" :aria-label="'Show note ' + pins.find((each) => each.id === note.id)?.number + ' in the view'">{{ pins.find((each) => each.id === note.id)?.number }}</button></p>
          <p class="bl-text">{{ note.text }}</p>
          <button type="button" class="reply" @click="beginReply(note)" :aria-label="'Reply to ' + note.name">Reply</button>
        </li>
      </ol>
    </section>
    <section class="bl-section"><h2>Polls</h2>
      <div v-for="poll in polls" :key="poll.id" class="bl-review-poll">
        <p><b>{{ poll.question }}</b> <span v-if="!poll.isOpen" class="bl-quiet bl-small">closed</span></p>
        <button v-for="(option, index) in poll.options" :key="index" type="button" :disabled="!poll.isOpen" :aria-pressed="poll.mine === index"
          :style="{ '--share': share(poll, index) + '%' }" @click="act('vote', { poll: poll.id, option: index })"><span>{{ option }}</span><span>{{ poll.counts[index] }}</span></button>
        <button v-if="poll.isOpen && (poll.author === me || isLeader)" type="button" class="reply" @click="act('close_poll', { poll: poll.id })">Close the poll</button>
      </div>
      <form class="bl-review-ask" @submit.prevent="ask">
        <input v-model="question" maxlength="300" placeholder="Ask everyone …" aria-label="Question of a new poll" autocomplete="off">
        <input v-model="options" maxlength="300" aria-label="Options, separated by commas" autocomplete="off">
        <button type="submit">Open the poll</button>
      </form>
    </section>
    <section class="bl-section"><h2>Parts</h2>
      <ul class="bl-review-parts">
        <li v-for="name in names" :key="name"><button type="button" :aria-pressed="parts.includes(name)" @click="toggle(name)" @pointerenter="hovered = name; update()">{{ name }}</button></li>
      </ul>
    </section>
  </aside>
</div>`;
