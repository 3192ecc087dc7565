// ---- Parts that drawings share.

const isNumber = (cell) => /^[\d$+−–×]/.test(cell || '–');

// Columns of numbers are set at the right, those of words at the left.
function table(name, columns, rows, wraps) {
  const cells = rows.map((r) => r.cells || r);
  const numeric = columns.map((_, c) => c > 0 && !wraps && cells.every((r) => isNumber(r[c])));
  const style = (c) => numeric[c] ? 'number' : null;
  return el(
      'div', {class: 'scroll', tabindex: 0, role: 'region', 'aria-label': `Table: ${name}`},
      el('table', {class: wraps && 'wraps'},
         el('thead', {},
            el('tr', {},
               columns.map((text, c) => el('th', {scope: 'col', class: style(c)}, text)))),
         el('tbody', {},
            rows.map(
                (r, i) => el(
                    'tr', {class: r.on && 'on'},
                    cells[i].map(
                        (text, c) => el('td', {class: style(c)}, text == null ? '–' : text)))))));
}

const numbersOf = (name, columns, rows) =>
    el('details', {}, el('summary', {}, `Numbers: ${name}`), table(name, columns, rows));

const swatch = (...shapes) => sv('svg', {width: 14, height: 14, 'aria-hidden': 'true'}, shapes);

function legend(entries) {
  const text = (e) => el('span', {}, e.name, e.text && [' ', el('b', {}, e.text)]);
  return el(
      'ul', {class: 'legend'},
      entries.map((e) => el('li', {}, e.mark || swatch(block(0.5, 0.5, 13, 13, e.hue)), text(e))));
}

function figure(name, note, parts) {
  const caption = [el('h3', {}, name), note && el('p', {class: 'note'}, note)];
  return el('figure', {}, el('figcaption', {}, caption), parts);
}
const drawing = (draw) => drawIn(el('div', {class: 'drawing'}), draw);

// Names and what they stand for.
function facts(pairs) {
  const given = pairs.filter(([, value]) => value);
  return el(
      'dl', {class: 'tiles'},
      given.map(([name, value]) => el('div', {}, el('dt', {}, name), el('dd', {}, value))));
}

function section(id, title, notes, parts) {
  return el(
      'section', {id, 'aria-labelledby': `${id}-title`}, el('h2', {id: `${id}-title`}, title),
      notes.filter(Boolean).map((n) => el('p', {class: 'note'}, n)), parts);
}

function limitLine(x, y1, y2, text, width) {
  const half = widthOf(text) / 2, at = Math.min(Math.max(x, half), width - half);
  return [
    line(x, y1, x, y2, {class: 'under'}), line(x, y1, x, y2, {class: 'limit'}),
    label(at, y1 - 6, text, {class: 'bad middle'})
  ];
}

// Where rows of bars go: names at the left, or above their bars if there is no room.
function rowsOf(names, width, top) {
  const longest = Math.max(...names.map((n) => widthOf(n))) + 14;
  const narrow = width < 600 || longest > width * 0.42, pitch = narrow ? 48 : 32;
  const left = narrow ? 1 : longest;
  const y = (i) => top + i * pitch + (narrow ? 21 : 5);
  const name = (i) => narrow ? label(1, y(i) - 6, cut(names[i], width), {class: 'halo'}) :
                               label(left - 10, y(i) + 15, names[i], {class: 'end'});
  return {left, y, name, height: 21, bottom: top + names.length * pitch + 2};
}

// Texts follow their bars, but do not cross the line of what there is.
function textAfter(end, text, limit) {
  const from = end + 7, crosses = limit > end && from + widthOf(text, 600) > limit - 5;
  return crosses ? limit + 8 : from;
}

// Horizontal bars, one a row: {name, value, text, tip, hue}. `axis` makes their ticks.
function bars(title, rows, {axis, limit, limitText}) {
  return drawing((width) => {
    const most = Math.max(...rows.map((r) => r.value), limit || 0) || 1, top = limit ? 24 : 4;
    const {left, y, name, height, bottom} = rowsOf(rows.map((r) => r.name), width, top);
    const texts = Math.max(...rows.map((r) => widthOf(r.text, 600)));
    const right = Math.max(left + 60, width - texts - 12), x = linear(0, most, left, right);
    const row = (r, i) =>
        [name(i),
         mark(block(left, y(i), Math.max(x(r.value) - left, 1), height, r.hue || 'blue'), r.tip, i),
         limit && r.value > limit && rect(x(limit), y(i), x(r.value) - x(limit), height, kOver),
         label(
             textAfter(x(r.value), r.text, limit && x(limit)), y(i) + 15, r.text,
             {class: 'halo strong'})];
    return picture(
        title, width, bottom + 40,
        axisBelow(
            axis(most, Math.max(2, (right - left) / 90)), x, {left, right, top, bottom, width}),
        limit && limitLine(x(limit), top, bottom, limitText, width), rows.map(row));
  });
}
const kOver = {
  fill: 'url(#over)',
  'pointer-events': 'none'
};

// One bar of parts, {name, value, hue}, with what there is as a line.
function stack(title, parts, limit, limitText) {
  return drawing((width) => {
    const sum = parts.reduce((all, p) => all + p.value, 0), most = Math.max(sum, limit || 0) || 1;
    const x = linear(0, most, 1, width - 2), top = limit ? 24 : 4, height = 38;
    const bottom = top + height + 4;
    let from = 0;
    const part = (p) => {
      const x1 = x(from), w = x(from + p.value) - x1;
      from += p.value;
      const tells = `${p.name}: ${bothBytes(p.value)}\n${percent(p.value / sum)} of all`;
      return [
        mark(block(x1, top, Math.max(w - 1, 0.7), height, p.hue), tells),
        widthOf(p.name) + 14 < w && label(x1 + 8, top + 24, p.name, onBlock(p.hue))
      ];
    };
    return picture(
        title, width, bottom + 42,
        limit && rect(1, top, x(limit) - 1, height, {fill: 'var(--grid)'}),
        axisBelow(
            byteTicks(most, Math.max(2, width / 100)), x,
            {left: 1, right: width - 1, top, bottom, width}),
        parts.map(part), limit && limitLine(x(limit), top, bottom, limitText, width));
  });
}
const onBlock = (hue) => ({style: `fill:${inkOn(hue)}`, 'pointer-events': 'none'});
