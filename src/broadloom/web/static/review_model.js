// The model of the design review: a wing, in millimeters. x runs along the chord, y along the span, z up.
// A part is a list of faces; a face has corners, perhaps a cutout, and a normal.

const SPAN = 6000, ROOT = 2400, TAPER = 0.62, SWEEP = 1750, DIHEDRAL = 330, THICKNESS = 0.13;
const FRONT = 0.18, REAR = 0.66; // of the chord: where the spars are
const RIBS = 7;

const chord = (s) => ROOT * (1 - TAPER * s);
/** Half the thickness of the profile (NACA, four digits). */
const half = (u) => 5 * THICKNESS * (0.2969 * Math.sqrt(u) - 0.126 * u - 0.3516 * u ** 2 + 0.2843 * u ** 3 - 0.1036 * u ** 4);
/** The point of the wing at a share of the span and of the chord; side is 1 above and -1 below. */
const at = (s, u, side) => {
  const camber = 0.06 * u * (1 - u);
  return [SWEEP * s + u * chord(s), SPAN * s, DIHEDRAL * s + chord(s) * (camber + side * half(u))];
};
const steps = (count, from = 0, to = 1) => Array.from({ length: count + 1 }, (_, each) => from + ((to - from) * each) / count);
const mix = (a, b, share) => a.map((each, axis) => each + (b[axis] - each) * share);

function grid(rows, columns, point) {
  const faces = [];
  for (let i = 0; i + 1 < rows.length; i++) for (let j = 0; j + 1 < columns.length; j++) {
    faces.push({ corners: [point(rows[i], columns[j]), point(rows[i + 1], columns[j]), point(rows[i + 1], columns[j + 1]), point(rows[i], columns[j + 1])] });
  }
  return faces;
}

const chordSteps = steps(14).map((each) => each ** 1.6); // finer where the nose is round
const skin = (side) => grid(steps(14), chordSteps, (s, u) => at(s, u, side));

function spar(u) {
  const flange = 0.028, spans = steps(18);
  const web = grid(spans, [-1, 0, 1], (s, side) => mix(at(s, u, -1), at(s, u, 1), (side + 1) / 2));
  const caps = [-1, 1].flatMap((side) => grid(spans, [u - flange, u + flange], (s, each) => at(s, each, side)));
  return [...web, ...caps];
}

/** A rib with a lightening cutout in each of its cells. */
function rib(s) {
  const cells = steps(3, FRONT, REAR), faces = [];
  for (let each = 0; each < 3; each++) {
    const columns = steps(4, cells[each], cells[each + 1]);
    const corners = [...columns.map((u) => at(s, u, -1)), ...columns.toReversed().map((u) => at(s, u, 1))];
    const low = at(s, (cells[each] + cells[each + 1]) / 2, -1), high = at(s, (cells[each] + cells[each + 1]) / 2, 1);
    const middle = mix(low, high, 0.5), radius = Math.min(0.3 * (high[2] - low[2]), 0.36 * (columns[4] - columns[0]) * chord(s));
    const cutout = steps(18, 0, 2 * Math.PI).slice(0, 18).map((angle) => [middle[0] + radius * Math.cos(angle), middle[1], middle[2] + radius * Math.sin(angle)]);
    faces.push({ corners, cutout });
  }
  const nose = steps(6, 0.012, FRONT);
  faces.push({ corners: [...nose.map((u) => at(s, u, -1)), ...nose.toReversed().map((u) => at(s, u, 1))] });
  return faces;
}

/** A body of revolution around an axis along x; the profile is a list of [x, radius]. */
function turned([x0, y0, z0], profile) {
  const faces = [];
  for (let each = 0; each + 1 < profile.length; each++) {
    const [[x1, r1], [x2, r2]] = [profile[each], profile[each + 1]];
    const point = (x, r, angle) => [x0 + x, y0 + r * Math.cos(angle), z0 + r * Math.sin(angle)];
    faces.push(...grid([0, 1], steps(22, 0, 2 * Math.PI), (end, angle) => (end ? point(x2, r2, angle) : point(x1, r1, angle))));
  }
  return faces;
}

const ENGINE = 0.34, hub = [SWEEP * ENGINE - 1050, SPAN * ENGINE, DIHEDRAL * ENGINE - 560];
const nacelle = [
  ...turned(hub, [[0, 390], [60, 440], [300, 480], [800, 475], [1300, 400], [1750, 285]]),
  ...turned(hub, [[0, 390], [40, 362], [330, 350]]),
  ...turned(hub, [[330, 350], [330, 120]]),
  ...turned(hub, [[120, 4], [200, 70], [330, 120]]),
  ...turned(hub, [[1750, 285], [1750, 170], [2050, 40]]),
];
const pylon = grid(steps(3), [-1, 0, 1], (up, side) => {
  const top = at(ENGINE, 0.04 + 0.4 * ((side + 1) / 2), -1), low = [hub[0] + 520 + 520 * (side + 1), hub[1], hub[2] + 440];
  return mix(low, top, up);
});
const flap = grid(steps(6, 0.12, 0.58), [0, 0.5, 1], (s, each) => {
  const from = at(s, 0.76, -1);
  return [from[0] + each * 0.3 * chord(s), from[1], from[2] - 30 - each * (90 + 0.1 * chord(s))];
});
const winglet = grid(steps(5), steps(3), (up, u) => {
  const foot = at(1, u * (1 - 0.5 * up), 0);
  return [foot[0] + 380 * up, foot[1] + 300 * up ** 0.6, foot[2] + 760 * up ** 1.3];
});

function withNormal(face) {
  const [a, b, c, d = a] = face.corners.length > 4 ? [0, 0.3, 0.6, 0.8].map((share) => face.corners[Math.floor(share * face.corners.length)]) : face.corners;
  const u = c.map((each, axis) => each - a[axis]), v = d.map((each, axis) => each - b[axis]);
  const normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
  const length = Math.hypot(...normal) || 1;
  const middle = [0, 1, 2].map((axis) => face.corners.reduce((sum, each) => sum + each[axis], 0) / face.corners.length);
  return { ...face, normal: normal.map((each) => each / length), middle };
}

const part = (hue, saturation, light, alpha, faces) => ({ hue, saturation, light, alpha, faces: faces.map(withNormal) });

/** Hue, saturation, lightness, and alpha, which is low for parts that one sees through. */
export const PARTS = {
  "skin-upper": part(212, 46, 66, 0.26, skin(1)),
  "skin-lower": part(212, 40, 60, 0.34, skin(-1)),
  "spar-front": part(168, 42, 46, 1, spar(FRONT)),
  "spar-rear": part(168, 42, 40, 1, spar(REAR)),
  ...Object.fromEntries(steps(RIBS - 1, 0.02, 0.97).map((s, each) => [`rib-${each + 1}`, part(36, 48, 56, 1, rib(s))])),
  nacelle: part(216, 16, 64, 0.97, nacelle),
  pylon: part(216, 14, 52, 1, pylon),
  flap: part(14, 52, 60, 0.9, flap),
  winglet: part(212, 42, 60, 0.85, winglet),
};
export const CENTER = [1700, 2900, 60];
export const HOME = { eye: [-3500, -1950, 3350], target: CENTER };
