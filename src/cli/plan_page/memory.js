// ---- Memory.

const inGiB = (n) => fixed((n || 0) / 2 ** 30, 2);
const inGB = (n) => fixed((n || 0) / 1e9, 2);

// What there is, for the drawings that compare with it.
function limitOf(available) {
  return known(available) ? {limit: available, limitText: `${bytes(available)} available`} : {};
}
const deviceLimit = () => limitOf(plan.memory && plan.memory.available_bytes);

function memorySection() {
  const m = plan.memory;
  if (!m) return null;
  return section(
      'memory', 'Memory',
      [
        plan.basis && sentence(`planned ${plan.basis}`), largestText(plan.largest),
        known(m.quick_bytes) &&
            `The quick rule (weights, batch and optimizer alone) says ${bytes(m.quick_bytes)}; ` +
                'the plan counts every buffer of the step.'
      ],
      [
        fitsWith(), peakStack(m), memoryOverStep(m), phaseBars(m), rankBars(m),
        hostMemory(plan.host_memory)
      ]);
}

function largestText(largest) {
  const {micro_batch_size: samples, max_seq_length: tokens} = largest || {};
  const texts = [
    samples > 0 && `micro-batches of ${grouped(samples)}`,
    tokens > 0 && `sequences of ${grouped(tokens)} tokens`
  ].filter(Boolean);
  return texts.length && `The largest that fit, with all else as it is: ${texts.join(', or ')}.`;
}

function categoryRows(parts) {
  const sum = parts.reduce((all, p) => all + p.value, 0);
  return parts.map((p) => [p.name, inGiB(p.value), inGB(p.value), percent(p.value / sum, 1)]);
}
const withSizes = (parts) => parts.map((p) => ({...p, text: bytes(p.value)}));
const kCategoryColumns = ['category', 'GiB', 'GB', 'share'];

function peakStack(m) {
  const parts = byCategory(m.by_category), {limit, limitText} = deviceLimit();
  if (!parts.length) return null;
  const when = [
    m.peak_phase && `in the phase “${m.peak_phase}”`, m.peak_buffer && `with ${m.peak_buffer}`
  ].filter(Boolean).join(', ');
  const note = `The peak is ${bothBytes(m.peak_bytes)}${when && ', ' + when}.`;
  return figure('What the memory holds at its peak', note, [
    stack('Memory at its peak by category', parts, limit, limitText), legend(withSizes(parts)),
    numbersOf('memory by category', kCategoryColumns, categoryRows(parts))
  ]);
}

function hostMemory(h) {
  if (!h || !known(h.peak_bytes)) return null;
  const {limit, limitText} = limitOf(h.available_bytes), given = byCategory(h.by_category);
  const parts = given.length ? given : [{name: 'in all', value: h.peak_bytes, hue: 'blue'}];
  const ofEach = plan.run && plan.run.gpus > 1 ? ', for each GPU' : '';
  return figure('Memory of the host', `${bothBytes(h.peak_bytes)} at its peak${ofEach}.`, [
    stack('Memory of the host by category', parts, limit, limitText), legend(withSizes(parts)),
    numbersOf('memory of the host', kCategoryColumns, categoryRows(parts))
  ]);
}

// ---- Peaks as bars: of phases, of ranks, and of changes that would make it fit.

function peakBars(name, note, what, rows) {
  const {limit} = deviceLimit();
  const tells = (r) => `${r.name}\n${bothBytes(r.peak_bytes)}` +
      (limit ? `\n${percent(r.peak_bytes / limit)} of what is available` : '');
  const shown =
      rows.map((r) => ({...r, value: r.peak_bytes, text: bytes(r.peak_bytes), tip: tells(r)}));
  const cells = rows.map((r) => [r.name, inGiB(r.peak_bytes), inGB(r.peak_bytes)]);
  return figure(name, note, [
    bars(name, shown, {axis: byteTicks, ...deviceLimit()}),
    numbersOf(name.toLowerCase(), [what, 'GiB', 'GB'], cells)
  ]);
}

function phaseBars(m) {
  const rows = (m.phases || []).map((p) => ({...p, name: p.phase}));
  return rows.length ? peakBars('Peak by phase', null, 'phase', rows) : null;
}

function rankBars(m) {
  const name = (r) => known(r.ranks) ? `${r.name} · ${counted(r.ranks, 'rank')}` : r.name;
  const rows = (m.ranks || []).map((r) => ({...r, name: name(r)}));
  const note = 'Ranks that hold and do the same share a bar.';
  return rows.length > 1 ? peakBars('Peak by rank', note, 'ranks', rows) : null;
}

// ", 21% slower"; the time of a step if nothing is known to compare with.
function slower(change, before) {
  const {slower: factor, step_seconds: step} = change;
  if (!known(factor)) return known(step) ? `${before}${seconds(step)} a step` : '';
  const more = factor - 1, size = percent(Math.abs(more));
  return before + (size === '0%' ? 'as fast' : `${size} ${more > 0 ? 'slower' : 'faster'}`);
}

function fitsWith() {
  const rows = plan.fits_with || [];
  if (!rows.length) return null;
  const step = (r) => known(r.step_seconds) ? `\n${seconds(r.step_seconds)} a step` : '';
  const shown = rows.map((r) => ({
                           name: r.change,
                           value: r.peak_bytes,
                           hue: 'green',
                           text: bytes(r.peak_bytes) + slower(r, ', '),
                           tip: `${r.change}\n${bothBytes(r.peak_bytes)}${step(r)}` +
                               (known(r.slower) ? slower(r, '\n') : '')
                         }));
  const cells = rows.map(
      (r) =>
          [r.change, inGiB(r.peak_bytes), inGB(r.peak_bytes), seconds(r.step_seconds),
           known(r.slower) ? '× ' + fixed(r.slower, 2) : '–']);
  return figure(
      'What would make it fit', 'Each change alone: the memory it needs, and its cost in time.', [
        bars('What would make it fit', shown, {axis: byteTicks, ...deviceLimit()}),
        numbersOf('what would make it fit', ['change', 'GiB', 'GB', 'a step', 'time'], cells)
      ]);
}

// ---- Memory over the step, as areas on top of each other.

function memoryOverStep(m) {
  const given = m.timeline || [];
  if (given.length < 2) return null;
  const points =
      given.map((p) => ({at: p.at, all: p.by_category || {}, parts: byCategory(p.by_category)}));
  for (const p of points) p.sum = p.parts.reduce((all, part) => all + part.value, 0);
  const names =
      byCategory(Object.fromEntries(points.flatMap((p) => p.parts.map((x) => [x.name, 1]))));
  const columns = ['time', 'GiB', ...names.map((n) => `${n.name}, GiB`)];
  const cells =
      points.map((p) => [seconds(p.at), inGiB(p.sum), ...names.map((n) => inGiB(p.all[n.name]))]);
  return figure('Memory over the step', 'By what it holds, from one change to the next.', [
    drawing((width) => memoryAreas(width, points, layersOf(points, names))), legend(names),
    numbersOf('memory over the step', columns, cells)
  ]);
}

// Each category with where it begins and ends at each point.
function layersOf(points, names) {
  let tops = points.map(() => 0);
  return names.map((n) => {
    const low = tops;
    tops = points.map((p, i) => low[i] + (p.all[n.name] || 0));
    return {...n, low, high: tops};
  });
}

// Memory holds until the next point, so the areas have steps.
function areaPath(points, x, y, {low, high}, end) {
  let up = '', down = '';
  points.forEach((p, i) => {
    const x1 = x(p.at), x2 = x(i + 1 < points.length ? points[i + 1].at : end);
    up += `L${x1} ${y(high[i])}L${x2} ${y(high[i])}`;
    down = `L${x2} ${y(low[i])}L${x1} ${y(low[i])}` + down;
  });
  return 'M' + up.slice(1) + down + 'z';
}

// When the last point ends: with the step, if its time is known.
function endOf(points) {
  const last = points[points.length - 1].at, before = points[points.length - 2].at;
  const step = plan.timeline && plan.timeline.seconds;
  return known(step) && step > last ? step : last + (last - before);
}

function memoryAreas(width, points, layers) {
  const {limit, limitText} = deviceLimit(), end = endOf(points);
  const most = Math.max(...points.map((p) => p.sum), limit || 0) * 1.03;
  const vertical = byteTicks(most, 5), across = timeTicks(end, width / 110, 'time in the step');
  const left = roomFor(vertical.ticks), right = width - 10, top = 34, bottom = 274;
  const frame = {left, right, top, bottom, width};
  const x = linear(Math.min(0, points[0].at), end, left, right), y = linear(0, most, bottom, top);
  const area = (l) => path(areaPath(points, x, y, l, end), {fill: paint(l.hue)});
  return picture(
      'Memory over the step by category', width, bottom + 42, axisLeft(vertical, y, frame),
      layers.map(area), axisBelow(across, x, {...frame, top: bottom}),
      probes(points, x, end, frame), limit && [
        line(left, y(limit), right, y(limit), {class: 'under'}),
        line(left, y(limit), right, y(limit), {class: 'limit'}),
        label(right - 2, Math.max(y(limit) - 6, 12), limitText, {class: 'bad halo end'})
      ]);
}

// Columns to point at, each with its moment of most memory.
function probes(points, x, end, {top, bottom}) {
  const room = Math.floor((x(end) - x(points[0].at)) / 6);
  const columns = Math.min(points.length, Math.max(8, room)), each = points.length / columns;
  return Array.from({length: columns}, (_, c) => {
    const first = Math.floor(c * each), next = Math.floor((c + 1) * each);
    const most = points.slice(first, next).reduce((a, b) => b.sum > a.sum ? b : a);
    const from = x(points[first].at), to = x(next < points.length ? points[next].at : end);
    const parts = most.parts.map((p) => `${p.name} ${bytes(p.value)}`).join('\n');
    return mark(
        rect(from, top, Math.max(to - from, 1), bottom - top, {class: 'probe'}),
        `at ${seconds(most.at)}: ${bytes(most.sum)}\n${parts}`);
  });
}
