// ---- The timeline of a step: rows of events, and arrows from what is waited for to who waits.

const isWait = (event) => workOf(event.kind).hue === 'wait';

const kLanes = {
  compute: 'computation',
  comm: 'communication'
};

// Rows are named after ranks or stages, and after lanes where these have several.
function laneRows(timeline) {
  const rows = (timeline.rows || []).filter((r) => (r.events || []).length);
  const lane = (r) => kLanes[r.lane] || r.lane || '',
        alone = new Set(rows.map((r) => r.name)).size === 1;
  const several = (r) => rows.some((other) => other !== r && other.name === r.name);
  const name = (r) => alone && rows.length > 1 ? lane(r) :
      several(r)                               ? `${r.name}, ${lane(r)}` :
                                                 r.name;
  return rows.map(
      (r) => ({name: name(r), events: [...r.events].sort((a, b) => a.begin - b.begin)}));
}

function timelineNote(timeline, waits) {
  const names = new Set(timeline.rows.map((r) => r.name)),
        who = names.size === 1 ? `${[...names][0]}: ` : '';
  return [
    sentence(who + (timeline.note || '')),
    waits && 'Arrows lead from what is waited for to who waits.'
  ].filter(Boolean)
      .join(' ');
}

function stepTimeline(timeline) {
  const rows = laneRows(timeline || {});
  if (!rows.length) return null;
  const total = timeline.seconds || Math.max(...rows.flatMap((r) => r.events.map((e) => e.end)));
  const works =
      new Map(rows.flatMap((r) => r.events.map((e) => workOf(e.kind))).map((w) => [w.name, w]));
  const view = {
    rows,
    total,
    why: causes(rows, total),
    zoom: 1,
    names: el('div', {}),
    field: el('div', {class: 'scroll'})
  };
  const box = el('div', {class: 'lanes drawing'}, view.names, view.field);
  drawings.push(() => drawLanes(view, box.clientWidth));
  const others = [...works.values()].filter((w) => !kWork.includes(w));
  return figure('One step', timelineNote(timeline, view.why.size > 0), [
    zoomButtons(view, box), box,
    legend([...kWork.filter((w) => works.has(w.name)).reverse(), ...others]),
    laneNumbers(rows, total, [...works.keys()])
  ]);
}

function zoomButtons(view, box) {
  const button = (text, name, factor) => {
    const b = el('button', {'aria-label': name}, text);
    b.addEventListener('click', () => {
      view.zoom = Math.min(16, Math.max(1, view.zoom * factor));
      drawLanes(view, box.clientWidth);
    });
    return b;
  };
  return el(
      'div', {class: 'zoom', role: 'group', 'aria-label': 'Zoom of the timeline'},
      button('−', 'Show more of the step', 0.5), button('+', 'Enlarge the timeline', 2));
}

// For each wait the event of another row that it ends with: the one it names, or of the name of
// what follows it (a stage waits for its micro-batch), or else one that ends at that moment.
function causes(rows, total) {
  const byName = new Map(), found = new Map(), near = total * 1e-3;
  const all =
      rows.flatMap((r, row) => r.events.filter((e) => !isWait(e)).map((event) => ({event, row})));
  for (const a of all) byName.set(a.event.name, [...(byName.get(a.event.name) || []), a]);
  rows.forEach((r, row) => r.events.forEach((wait, i) => {
    if (!isWait(wait)) return;
    const next = r.events[i + 1], ends = (a) => a.row !== row && a.event.end <= wait.end + near;
    const named =
        ((next && byName.get(next.name)) || [])
            .filter(
                (a) => ends(a) && a.event.end > wait.begin - near && Math.abs(a.row - row) === 1);
    const other = () => all.filter(
        (a) => ends(a) && a.event.end >= wait.end - near && (!next || Math.abs(a.row - row) <= 2));
    const last = (named.length ? named : other()).sort((a, b) => b.event.end - a.event.end)[0];
    if (last) found.set(wait, last);
  }));
  return found;
}

function drawLanes(view, space) {
  if (!space) return;
  const {rows, total, names, field} = view, phone = space < 560;
  const pitch = rows.length > 24 ? 18 : rows.length > 10 ? 24 : 32, top = 4;
  const most = Math.max(...rows.map((r) => widthOf(r.name))) + 12;
  const side = Math.min(most, space * (phone ? 0.3 : 0.24)), bottom = top + rows.length * pitch;
  const width = Math.floor(Math.max(space - side, phone ? 520 : 0) * view.zoom);
  const x = linear(0, total, 1, width - 14), y = (row) => top + row * pitch;
  const name = (r, i) =>
      label(side - 8, y(i) + pitch / 2 + 4, cut(r.name, side - 10), {class: 'end'});
  const at = field.scrollLeft / (field.scrollWidth || 1);
  names.replaceChildren(
      sv('svg', {width: side, height: bottom, 'aria-hidden': 'true'}, rows.map(name)));
  field.replaceChildren(picture(
      'One step as a timeline. Arrow keys move between its parts.', width, bottom + 42,
      axisBelow(
          timeTicks(total, width / 100, 'time in the step'), x,
          {left: 1, right: width - 14, top, bottom, width}),
      rows.map((r, i) => r.events.map((e) => lane(view, e, i, x, y(i), pitch))),
      arrows(view, x, y, pitch)));
  field.scrollLeft = at * field.scrollWidth;
}

function lane({rows, why}, event, row, x, y, pitch) {
  const {hue} = workOf(event.kind), from = x(event.begin), w = Math.max(x(event.end) - from, 0.6);
  const shape = block(from, y + 2, w - (w > 4 ? 0.7 : 0), pitch - 4, hue);
  const box = mark(shape, laneText(rows, event, row, why.get(event)), row);
  if (why.has(event)) box.dataset.link = linkOf(event);
  const texts = [event.name, (event.name.match(/\d+$/) || [''])[0]];
  const text = pitch > 20 && texts.find((s) => s && widthOf(s) + 6 < w);
  const style = hue === 'wait' ? {class: 'halo middle', 'pointer-events': 'none'} :
                                 {class: 'middle', ...onBlock(hue)};
  return [box, text && label(from + w / 2, y + pitch / 2 + 4.5, text, style)];
}

function laneText(rows, event, row, cause) {
  const {begin, end, name, kind, note} = event, work = workOf(kind).name;
  return [
    `${rows[row].name}: ${name}`, name.includes(work) || isWait(event) ? '' : work,
    `${seconds(end - begin)}, from ${seconds(begin)} to ${seconds(end)}`, note,
    cause && !note && `until ${cause.event.name} ended (${rows[cause.row].name})`
  ].filter(Boolean)
      .join('\n');
}

const linkNames = new Map();
function linkOf(event) {
  if (!linkNames.has(event)) linkNames.set(event, `link${linkNames.size}`);
  return linkNames.get(event);
}

// The arrow of a short wait appears while the wait is pointed at.
function arrows({rows, why, total}, x, y, pitch) {
  const rowOf = new Map(rows.flatMap((r, i) => r.events.map((e) => [e, i])));
  return [...why].map(([wait, cause]) => {
    const row = rowOf.get(wait), down = row > cause.row, from = x(cause.event.end),
          to = x(wait.end);
    const y1 = y(cause.row) + (down ? pitch - 3 : 3), y2 = y(row) + (down ? 4 : pitch - 4);
    const bend = (y1 + y2) / 2, small = wait.end - wait.begin < total * 0.01;
    return path(
        `M${from} ${y1}C${from} ${bend} ${to} ${bend} ${to} ${y2}`,
        {id: linkOf(wait), class: small ? 'link small' : 'link', 'marker-end': 'url(#arrow)'});
  });
}

function laneNumbers(rows, total, works) {
  const sum = (r, work) => r.events.filter((e) => workOf(e.kind).name === work)
                               .reduce((all, e) => all + e.end - e.begin, 0);
  const cell = (s) => s > 0 ? `${seconds(s)}, ${percent(s / total)}` : '–';
  return numbersOf(
      'one step, by row', ['row', ...works],
      rows.map((r) => [r.name, ...works.map((w) => cell(sum(r, w)))]));
}
