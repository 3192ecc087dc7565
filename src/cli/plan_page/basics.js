const plan = JSON.parse(document.getElementById('plan').textContent);
const main = document.getElementById('main');

// ---- Elements. Texts become text nodes and attributes, never markup.

// The name space of SVG, from the parser.
const SVG = (() => {
  const holder = document.createElement('div');
  holder.innerHTML = '<svg></svg>';
  return holder.firstChild.namespaceURI;
})();

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value != null && value !== false) node.setAttribute(name, value);
  node.append(...children.flat(9).filter((c) => c != null && c !== false && c !== 0));
  return node;
}
const el = (tag, attributes, ...children) =>
    fill(document.createElement(tag), attributes, children);
const sv = (tag, attributes, ...children) =>
    fill(document.createElementNS(SVG, tag), attributes, children);

// ---- Numbers as people read them. Bytes are in powers of 1024, as on the terminal.

// By the number of digits after the point. They are made once, since that takes long.
const kFormats = Array.from(
    {length: 13},
    (_, n) => new Intl.NumberFormat('en-US', {minimumFractionDigits: n, maximumFractionDigits: n}));
const fixed = (value, digits) => kFormats[digits].format(value);
const kNoBreak = '\u00a0';  // a space at which no line breaks
const known = (value) => typeof value === 'number' && isFinite(value);
const grouped = (n) => known(n) ? fixed(n, 0) : '–';

function digitsOf(value) {
  const size = Math.abs(value);
  return size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
}

function scaled(value, base, units) {
  let power = 0;
  for (; power + 1 < units.length && Math.abs(value) >= base - 0.5; ++power) value /= base;
  return [power ? fixed(value, digitsOf(value)) : fixed(value, 0), units[power]];
}

function bytes(n) {
  return known(n) ? scaled(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']).join(kNoBreak) : '–';
}
const decimalBytes = (n) => scaled(n, 1000, ['B', 'kB', 'MB', 'GB', 'TB', 'PB']).join(kNoBreak);
const bothBytes = (n) => known(n) ? `${bytes(n)} (${decimalBytes(n)})` : '–';
const amount = (n) =>
    known(n) ? scaled(n, 1000, ['', 'K', 'M', 'B', 'T']).join(kNoBreak).trim() : '–';
// Without digits that say nothing: of ticks.
const short = (n) => amount(n).replace(/\.0+(?=\D|$)/, '');
const percent = (share, digits = 0) => known(share) ? fixed(100 * share, digits) + '%' : '–';
const signOf = (n) => n > 0 ? '+' : n < 0 ? '−' : '';
const signed = (share, digits = 0) => signOf(share) + percent(Math.abs(share), digits);
const dollars = (n) => known(n) ? '$' + fixed(n, n < 999.995 ? 2 : 0) : '–';
const flops = (n) => scaled(n, 1000, ['', 'K', 'M', 'G', 'T', 'P', 'E']).join(' ') + 'FLOP/s';

// "840 µs", "812 ms", "4.20 s", "3 min 12 s", "3 h 12 min", "20 d 4 h".
function seconds(s) {
  if (!known(s)) return '–';
  if (s === 0) return `0${kNoBreak}s`;
  if (s < 0.9995e-3) return fixed(s * 1e6, digitsOf(s * 1e6)) + kNoBreak + 'µs';
  if (s < 0.9995) return fixed(s * 1e3, s < 0.09995 ? 1 : 0) + kNoBreak + 'ms';
  if (s < 59.95) return fixed(s, s < 9.995 ? 2 : 1) + kNoBreak + 's';
  const [, size, unit, small, smallUnit] = kLongTimes.find(([from]) => s >= from);
  const whole = Math.round(s / small), rest = whole % (size / small);
  const parts = [grouped(Math.floor(whole / (size / small))), unit];
  return [...parts, ...(rest ? [rest, smallUnit] : [])].join(kNoBreak);
}
// From where on a time has these two units, less the rounding: 59 min 59.6 s is 1 h.
const kLongTimes = [
  [172800 - 1800, 86400, 'd', 3600, 'h'], [3600 - 0.5, 3600, 'h', 60, 'min'], [0, 60, 'min', 1, 's']
];

const span = (low, high, text) =>
    known(low) && known(high) ? `${text(low)} to ${text(high)}` : null;
const gpusText = (n, gpu) => `${grouped(n)} × ${gpu || 'GPU'}`;
const counted = (n, noun) => `${grouped(n)} ${noun}${n === 1 ? '' : 's'}`;

// With a capital and a full stop.
function sentence(text) {
  const whole = text && !/[.!?]$/.test(text) ? `${text}.` : text || '';
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}

// ---- Colours by meaning, the same in every drawing.

const kCategories = {
  weights: 'blue',
  gradients: 'orange',
  optimizer: 'green',
  activations: 'sky',
  workspace: 'pink',
  data: 'yellow',
  cache: 'yellow',
  staging: 'brown',
  communication: 'brown',
  packing: 'grey'
};
// Kinds of work by words in their names; the first that matches counts.
const kWork = [
  [/wait|idle|bubble/, 'wait', 'waiting'],
  [/comm|gather|reduce|send|receive|message/, 'pink', 'communication'],
  [/^update|optimi/, 'green', 'update'], [/cop/, 'brown', 'copies'],
  [/weight/, 'yellow', 'weights’ gradients'], [/backward/, 'orange', 'backward'],
  [/forward/, 'blue', 'forward'], [/product|matri|head/, 'blue', 'matrix products'],
  [/^compute/, 'blue', 'computation'], [/attention/, 'orange', 'attention'],
  [/norm|other/, 'sky', 'norms and others']
].map(([words, hue, name]) => ({words, hue, name}));

function workOf(kind) {
  const text = String(kind).toLowerCase();
  return kWork.find(({words}) => words.test(text)) || {hue: 'grey', name: String(kind)};
}
const paint = (hue) => hue === 'wait' ? 'url(#hatch)' : `var(--${hue})`;

// Of text on a colour: the lighter hues take dark ink in both themes.
function inkOn(hue) {
  const dark = document.documentElement.dataset.theme === 'dark';
  return dark || ['sky', 'yellow', 'orange', 'pink', 'grey'].includes(hue) ? '#14181d' : '#fff';
}

function byCategory(values) {
  const order = Object.keys(kCategories);
  const place = (name) => order.includes(name) ? order.indexOf(name) : order.length;
  return Object.entries(values || {})
      .filter(([, n]) => n > 0)
      .sort((a, b) => place(a[0]) - place(b[0]))
      .map(([name, value]) => ({name, value, hue: kCategories[name] || 'grey'}));
}
