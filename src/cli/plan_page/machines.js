// ---- Scaling: throughput by number of GPUs, or memory if no times are known.

const isPlanned = (r) => plan.run && r.gpus === plan.run.gpus;

// What each GPU has to other machines: on one page it may differ, since rented instances have less.
const betweenText = (r) => known(r.between_machines) ? `${amount(r.between_machines)}B/s` : '–';
const joins = (rows) => rows.some((r) => known(r.between_machines));
const kBetween = 'between machines';

function scalingSection() {
  const rows = [...(plan.scaling || [])].sort((a, b) => a.gpus - b.gpus);
  if (!rows.length) return null;
  const timed = rows.filter((r) => r.fits && r.tokens_per_second > 0);
  const link = joins(rows) ? [kBetween] : [];
  const columns =
      ['GPUs', 'mesh', ...link, 'memory', 'fits', ...(timed.length ? kScalingTimes : [])];
  const cells = (r) => [grouped(r.gpus), r.mesh, ...link.map(() => betweenText(r)),
                        bytes(r.peak_bytes), r.fits ? 'yes' : 'no', seconds(r.step_seconds),
                        grouped(r.tokens_per_second), percent(r.efficiency),
                        seconds(r.run_seconds), dollars(r.dollars)]
                           .slice(0, columns.length);
  const numbers =
      numbersOf('scaling', columns, rows.map((r) => ({on: isPlanned(r), cells: cells(r)})));
  return section(
      'scaling', 'What more GPUs buy', [],
      [timed.length ? throughput(rows, timed, numbers) : memoryByGpus(rows, numbers)]);
}
const kScalingTimes = ['a step', 'tokens/s', 'efficiency', 'time', 'cost'];

function memoryByGpus(rows, numbers) {
  const shown = rows.map((r) => ({
                           name: `${counted(r.gpus, 'GPU')}, ${r.mesh}`,
                           value: r.peak_bytes,
                           text: bytes(r.peak_bytes),
                           tip: scalingText(r)
                         }));
  return figure(
      'Memory by number of GPUs', null,
      [bars('Memory by number of GPUs', shown, {axis: byteTicks, ...deviceLimit()}), numbers]);
}

function throughput(rows, timed, numbers) {
  const note = 'Both axes are logarithmic. A percentage is the throughput per GPU, compared with ' +
      `that of ${counted(timed[0].gpus, 'GPU')}; the largest dot is this plan.`;
  const key = [
    {name: 'planned', mark: swatch(line(0, 7, 14, 7, kPlannedLine))},
    {name: 'ideal', mark: swatch(line(0, 7, 14, 7, kIdealLine))},
    {name: 'does not fit', mark: swatch(cross(7, 7))}
  ];
  return figure('Throughput by number of GPUs', note, [
    drawing((width) => scalingCurve(width, rows, timed)),
    legend(rows.some((r) => !r.fits) ? key : key.slice(0, 2)), numbers
  ]);
}
const kPlannedLine = {
  stroke: 'var(--blue)',
  'stroke-width': 2.5,
  fill: 'none'
};
const kIdealLine = {
  stroke: 'var(--soft)',
  'stroke-width': 1.5,
  'stroke-dasharray': '3 4'
};
const cross = (x, y) =>
    path(`M${x - 5} ${y - 5}l10 10m0 -10l-10 10`, {stroke: 'var(--bad)', 'stroke-width': 3});

function scalingText(r) {
  return [
    `${counted(r.gpus, 'GPU')}, ${r.mesh}`,
    known(r.between_machines) && `${betweenText(r)} of each GPU to other machines`,
    `${r.fits ? 'fits' : 'does not fit'}: ${bytes(r.peak_bytes)}`,
    known(r.tokens_per_second) && `${grouped(r.tokens_per_second)} tokens/s`,
    known(r.efficiency) && `efficiency ${percent(r.efficiency)}`,
    known(r.run_seconds) && `${seconds(r.run_seconds)} to finish`,
    known(r.dollars) && dollars(r.dollars)
  ].filter(Boolean)
      .join('\n');
}

function scalingCurve(width, rows, timed) {
  const first = timed[0], low = rows[0].gpus, high = Math.max(rows[rows.length - 1].gpus, low * 2);
  const ideal = (gpus) => first.tokens_per_second / first.gpus * gpus;
  const floor = Math.min(...timed.map((r) => r.tokens_per_second)) / 1.6, roof = ideal(high) * 1.25;
  const vertical = {ticks: logTicks(floor, roof, short), title: 'tokens/s'};
  const left = roomFor(vertical.ticks), right = width - 34, top = 34, bottom = 300;
  const frame = {left, right, top, bottom, width};
  const x = logarithmic(low, high, left + 20, right),
        y = logarithmic(floor, roof, bottom - 26, top);
  const powers = Array.from({length: 20}, (_, i) => 2 ** i).filter((n) => n >= low && n <= high);
  const across = {ticks: powers.map((at) => ({at, text: grouped(at)})), title: 'GPUs'};
  const at = (r) => [x(r.gpus), y(r.tokens_per_second)], taken = timed.map((r) => around(...at(r)));
  const point = (r) => timed.includes(r) ?
      dot(...at(r), isPlanned(r) ? 8 : 5.5, {fill: 'var(--blue)'}) :
      cross(x(r.gpus), bottom - 13);
  return picture(
      'Throughput by number of GPUs, with the ideal line', width, bottom + 42,
      axisLeft(vertical, y, frame), axisBelow(across, x, frame),
      line(...at(first), x(high), y(ideal(high)), kIdealLine),
      sv('polyline', {points: timed.map((r) => at(r).join()).join(' '), ...kPlannedLine}),
      rows.map((r) => mark(point(r), scalingText(r))),
      timed.map(
          (r) => placed(taken, ...at(r), percent(r.efficiency), frame, 1, {class: 'halo strong'})));
}

// ---- Offers: machines to rent, by cost and time.

const offerTime = (o) => known(o.run_seconds) ? o.run_seconds : o.step_seconds;
const offerName = (o) => gpusText(o.gpus, o.gpu);

function offersSection() {
  const offers = plan.offers || [];
  if (!offers.length) return null;
  const judged = offers.some((o) => typeof o.meets === 'boolean');
  const priced = offers.filter((o) => o.dollars > 0 && offerTime(o) > 0);
  const met = judged &&
      `${offers.filter((o) => o.meets).length} of ${counted(offers.length, 'offer')} meet ` +
          'the deadline and the budget.';
  return section(
      'offers', 'What to rent', [met],
      [priced.length > 1 && offersFigure(priced, judged), offersTable(offers, judged)]);
}

function offersTable(offers, judged) {
  const link = joins(offers) ? [kBetween] : [];
  const columns = [
    'machines', 'mesh', ...link, 'activations', 'memory', 'a step', 'time', 'cost', 'unbeaten',
    'meets'
  ];
  const cells = (o) => [offerName(o), o.mesh, ...link.map(() => betweenText(o)), o.activations,
                        bytes(o.peak_bytes), seconds(o.step_seconds), seconds(o.run_seconds),
                        dollars(o.dollars), o.front ? 'yes' : 'no', o.meets ? 'yes' : 'no'];
  const count = judged ? columns.length : columns.length - 1;
  return table(
      'offers', columns.slice(0, count),
      offers.map((o) => ({on: o.front, cells: cells(o).slice(0, count)})));
}

function offersFigure(offers, judged) {
  const key = [
    {
      name: 'nothing else is both faster and cheaper',
      mark: swatch(path('M0 3H7V11H14', kFrontLine))
    },
    {
      name: 'meets deadline and budget',
      mark: swatch(dot(7, 7, 5.5, offerStyle({meets: true}, true)))
    },
    {name: 'misses one', mark: swatch(dot(7, 7, 5.5, offerStyle({}, true)))}
  ];
  return figure('Cost against time', null, [
    drawing((width) => offersPlot(width, offers, judged)), legend(judged ? key : key.slice(0, 1))
  ]);
}
const kFrontLine = {
  stroke: 'var(--orange)',
  'stroke-width': 2.5
};
const offerStyle = (o, judged) => ({
  'stroke-width': 2,
  stroke: 'var(--blue)',
  fill: judged && !o.meets ? 'var(--card)' : 'var(--blue)'
});

// An axis from zero, or a logarithmic one where values differ much.
function offerAxis(values, clock, count) {
  const low = Math.min(...values) / 1.15, high = Math.max(...values) * 1.15;
  const quantity = clock ? 'time to finish' : 'cost',
        text = clock ? seconds : (n) => '$' + short(n);
  if (high / low > 8)
    return {
      title: `${quantity}, logarithmic`,
      ticks: logTicks(low, high, text, clock),
      scale: (from, to) => logarithmic(low, high, from, to)
    };
  const linearTicks = clock ? timeTicks(high, count, quantity) :
                              ticksIn([[1, 'US dollars']], high, count, quantity);
  return {...linearTicks, scale: (from, to) => linear(0, high, from, to)};
}

function offersPlot(width, offers, judged) {
  const vertical = offerAxis(offers.map((o) => o.dollars), false, 5);
  const across = offerAxis(offers.map(offerTime), true, width / 110);
  const left = roomFor(vertical.ticks), right = width - 16, top = 34, bottom = 330;
  const frame = {left, right, top, bottom, width};
  const x = across.scale(left + 8, right - 8), y = vertical.scale(bottom, top);
  const at = (o) => [x(offerTime(o)), y(o.dollars)], taken = offers.map((o) => around(...at(o)));
  const front = offers.filter((o) => o.front).sort((a, b) => offerTime(a) - offerTime(b));
  const steps = front.map((o, i) => i ? `H${at(o)[0]}V${at(o)[1]}` : `M${at(o).join(' ')}`);
  return picture(
      'Cost against time of machines to rent', width, bottom + 42, axisLeft(vertical, y, frame),
      axisBelow(across, x, frame), path(steps.join('') || 'M0 0', kFrontLine),
      offers.map(
          (o) =>
              mark(dot(...at(o), o.front ? 6.5 : 5, offerStyle(o, judged)), offerText(o, judged))),
      front.map((o) => placed(taken, ...at(o), offerName(o), frame, 0)));
}

function offerText(o, judged) {
  return [
    offerName(o), `${seconds(offerTime(o))} and ${dollars(o.dollars)}`, o.mesh,
    o.front && 'nothing else is both faster and cheaper',
    judged && (o.meets ? 'meets deadline and budget' : 'misses deadline or budget')
  ].filter(Boolean)
      .join('\n');
}
