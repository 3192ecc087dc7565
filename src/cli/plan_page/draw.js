// ---- Drawings: each redraws itself at the width there is.

const drawings = [];

function drawIn(box, draw) {
  const again = () => {
    const width = Math.floor(box.clientWidth);
    if (width > 0) box.replaceChildren(draw(width));
  };
  drawings.push(again);
  return box;
}

function redraw() {
  hideTip();
  for (const again of drawings) again();
}

// The hatch of "waiting" and of what is too much is drawn in one place for all drawings.
function patterns() {
  const lines = (id, colour) =>
      sv('pattern',
         {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)'},
         rect(0, 0, 6, 6, {fill: 'var(--card)'}), rect(0, 0, 2, 6, {fill: colour}));
  const arrow =
      {id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 6, markerHeight: 6};
  return sv(
      'svg', {width: 0, height: 0, style: 'position:absolute', 'aria-hidden': 'true'},
      lines('hatch', 'var(--grey)'), lines('over', 'var(--bad)'),
      sv('marker', {...arrow, orient: 'auto'},
         sv('path', {d: 'M0 0L8 4L0 8z', fill: 'var(--ink)'})));
}

const label = (x, y, content, attributes) => sv('text', {x, y, ...attributes}, content);
const rect = (x, y, width, height, attributes) => sv('rect', {x, y, width, height, ...attributes});
const line = (x1, y1, x2, y2, attributes) => sv('line', {x1, y1, x2, y2, ...attributes});
const path = (d, attributes) => sv('path', {d, fill: 'none', ...attributes});
const dot = (cx, cy, r, attributes) => sv('circle', {cx, cy, r, ...attributes});
const kEdges = {
  wait: 'var(--grey)',
  yellow: 'var(--gold)'
};
// A rectangle in the colour of its meaning.
const block = (x, y, width, height, hue) =>
    rect(x, y, width, height, {rx: 2, fill: paint(hue), stroke: kEdges[hue]});

function picture(label, width, height, ...children) {
  const svg = sv(
      'svg', {viewBox: `0 0 ${width} ${height}`, width, height, role: 'group', 'aria-label': label},
      ...children);
  const first = svg.querySelector('.mark');
  if (first) first.setAttribute('tabindex', 0);
  return svg;
}

// Makes a shape speak: a tooltip on hover and focus, the same text for screen readers.
function mark(node, text, row) {
  node.classList.add('mark');
  node.setAttribute('role', 'img');
  node.setAttribute('tabindex', -1);
  node.setAttribute('aria-label', text.replaceAll('\n', ', '));
  node.dataset.tip = text;
  if (row != null) node.dataset.row = row;
  return node;
}

const kFont = getComputedStyle(document.body).fontFamily;
const pen = document.createElement('canvas').getContext('2d');
function widthOf(text, weight = 400) {
  pen.font = `${weight} 13px ${kFont}`;
  return pen.measureText(text).width * 1.02;
}
function cut(text, room) {
  if (widthOf(text) <= room) return text;
  let n = text.length;
  while (n > 1 && widthOf(text.slice(0, n) + '…') > room) --n;
  return text.slice(0, n) + '…';
}

// ---- Scales and axes.

const linear = (d0, d1, r0, r1) => (v) => r0 + (v - d0) / (d1 - d0 || 1) * (r1 - r0);
const logarithmic = (d0, d1, r0, r1) => (v) =>
    linear(Math.log(d0), Math.log(d1), r0, r1)(Math.log(v));

function niceStep(most, count) {
  const rough = most / count, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((m) => m * power >= rough * 0.999) * power;
}

// Ticks from 0 of a quantity, in the largest of these units of which it has some:
// [[size of one, name, how many at least], …].
function ticksIn(units, most, count, quantity) {
  const [one, unit] = units.filter(([size, , least = 1]) => most / size >= least).pop() || units[0];
  const step = niceStep(most / one, count);
  const digits = Math.min(12, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  const ticks = [];
  for (let i = 0; i * step <= most / one * 1.0001; ++i)
    ticks.push({at: i * step * one, text: fixed(i * step, digits)});
  return {ticks, title: `${quantity} (${unit})`};
}
const kTimes =
    [[1e-6, 'µs'], [1e-3, 'ms'], [1, 's'], [60, 'min', 3], [3600, 'h', 3], [86400, 'd', 3]];
const kBytes = [[1, 'B'], [1024, 'KiB'], [2 ** 20, 'MiB'], [2 ** 30, 'GiB'], [2 ** 40, 'TiB']];
const timeTicks = (most, count, quantity = 'time') => ticksIn(kTimes, most, count, quantity);
const byteTicks = (most, count, quantity = 'memory') => ticksIn(kBytes, most, count, quantity);

// Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten, of times those that clocks have.
function logTicks(low, high, text, clock) {
  const candidates = [];
  for (let power = 1e-6; power < 1e15; power *= 10) candidates.push(power, 2 * power, 5 * power);
  const times =
      candidates.filter((t) => t < 60)
          .concat(
              [1, 2, 5, 10, 20, 30].map((m) => m * 60), [1, 2, 4, 8, 12].map((h) => h * 3600),
              [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].map((d) => d * 86400));
  return (clock ? times : candidates)
      .filter((t) => t >= low * 0.999 && t <= high * 1.001)
      .map((at) => ({at, text: text(at)}));
}

// The texts of ticks, within the drawing, without those that would touch another.
function tickTexts(ticks, x, left, right) {
  let end = -Infinity;
  return ticks.flatMap((t) => {
    const half = widthOf(t.text) / 2, at = Math.min(Math.max(x(t.at), left + half), right - half);
    if (at - half < end + 8) return [];
    end = at + half;
    return [{at, text: t.text}];
  });
}

// The axis below a drawing of this frame, {left, right, top, bottom, width}; takes 40 pixels.
function axisBelow({ticks, title}, x, {left, right, top, bottom, width}) {
  return sv(
      'g', {'aria-hidden': 'true'},
      ticks.map((t) => line(x(t.at), top, x(t.at), bottom, {class: 'grid'})),
      line(left, bottom, right, bottom, {class: 'axis'}),
      tickTexts(ticks, x, 0, width).map((t) => label(t.at, bottom + 16, t.text, kTickText)),
      label(Math.max(right, widthOf(title)), bottom + 34, title, {class: 'soft end'}));
}
const kTickText = {
  class: 'soft middle'
};

// The axis at the left, named above it.
function axisLeft({ticks, title}, y, {left, right, top}) {
  return sv(
      'g', {'aria-hidden': 'true'},
      ticks.map((t) => line(left, y(t.at), right, y(t.at), {class: 'grid'})),
      ticks.map((t) => label(left - 7, y(t.at) + 4, t.text, {class: 'soft end'})),
      label(0, top - 12, title, {class: 'soft'}));
}
const roomFor = (ticks) => 12 + Math.max(...ticks.map((t) => widthOf(t.text)), 8);

// A text beside a point, where it covers none of `taken`, first at the given one of the places
// around it; none if there is no room.
function placed(taken, px, py, text, {width, bottom}, first, attributes) {
  const w = widthOf(text), h = 15;
  const places = [
    [px + 8, py - 9], [px + 8, py + 20], [px - w - 8, py - 9], [px - w - 8, py + 20],
    [px - w / 2, py - 12], [px - w / 2, py + 24], [px + 11, py + 4], [px - w - 11, py + 4]
  ];
  for (const [x, y] of [places[first], ...places]) {
    const box = [x - 3, y - h + 2, x + w + 3, y + 3];
    if (box[0] < 0 || box[2] > width || box[1] < 0 || box[3] > bottom) continue;
    if (taken.some((t) => t[0] < box[2] && box[0] < t[2] && t[1] < box[3] && box[1] < t[3]))
      continue;
    taken.push(box);
    return label(x, y, text, {class: 'halo', ...attributes});
  }
  return null;
}
const around = (x, y) => [x - 6, y - 6, x + 6, y + 6];
