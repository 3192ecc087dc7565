// ---- Time.

function timeSection() {
  const t = plan.time;
  if (!t) return null;
  return section(
      'time', 'Time',
      [rangeText(t), pytorchText(t.pytorch), waitingText(t), calibrationText(t.calibration)],
      [kindBars(t), stepTimeline(plan.timeline), sensitivity()]);
}

// "A step takes 1.20 s; from 1.10 s to 1.40 s, as far as calibrated plans were off."
function rangeText(t) {
  const range = span(t.low_seconds, t.high_seconds, seconds);
  const texts = [`A step takes ${seconds(t.step_seconds)}`, range && `from ${range}`];
  return sentence([texts.filter(Boolean).join('; '), t.range].filter(Boolean).join(', '));
}

// "A PyTorch program (compiled) takes 1.12 s to 1.95 s: 1.04 to 1.29 times as long …"
function pytorchText(p) {
  if (!p) return '';
  const range = span(p.low_seconds, p.high_seconds, seconds);
  return sentence(`A PyTorch program (${p.programs}) takes ${range}: ${p.low_ratio} to ${
      p.high_ratio} times as long, as beside this one on an H200`);
}

function waitingText({exposed_communication: exposed, stages_wait: stages}) {
  const texts = [
    known(exposed) && `Computation waits for communication in ${percent(exposed, 1)} of the step`,
    stages > 0 && `stages wait for each other in ${percent(stages, 1)}`
  ].filter(Boolean).join('; ');
  return sentence(texts);
}

function calibrationText(c) {
  if (!c) return '';
  const date = c.date ? `, ${c.date}` : '';
  return c.data_sheet ? `By the data sheet of ${c.name}, not by measurements of one.` :
                        `By measurements of ${c.name}${date}.`;
}

function kindBars(t) {
  const kinds = (t.by_kind || []).filter((k) => k.seconds > 0);
  if (!kinds.length) return null;
  const part = (k) => k.seconds / t.step_seconds,
        share = (k) => percent(part(k), part(k) < 0.01 ? 1 : 0);
  const shown = kinds.map((k) => ({
                            name: k.kind,
                            value: k.seconds,
                            hue: workOf(k.kind).hue,
                            text: `${seconds(k.seconds)}, ${share(k)}`,
                            tip: `${k.kind}\n${seconds(k.seconds)} of ${seconds(t.step_seconds)}`
                          }));
  const cells = kinds.map((k) => [k.kind, fixed(k.seconds, 4), percent(part(k), 1)]);
  return figure('What a step spends its time on', null, [
    bars('Time of a step by kind of work', shown, {axis: timeTicks}),
    numbersOf('time by kind', ['kind', 'seconds', 'share of the step'], cells)
  ]);
}

// ---- Sensitivity, as bars to both sides of none.

function sensitivity() {
  const rows = (plan.sensitivity || [])
                   .filter((s) => known(s.change))
                   .sort((a, b) => Math.abs(b.change) - Math.abs(a.change));
  if (!rows.length) return null;
  const cells = rows.map((r) => [r.what, seconds(r.step_seconds), signed(r.change, 1)]);
  return figure(
      'What the time depends on',
      'How much longer or shorter a step takes if one assumption is off.', [
        drawing((width) => tornado(width, rows)),
        numbersOf('sensitivity', ['if', 'a step', 'change'], cells)
      ]);
}

function tornado(width, rows) {
  const {left, y, name, height, bottom} = rowsOf(rows.map((r) => r.what), width, 4);
  const text = (r) => signed(r.change, 1),
        room = 14 + Math.max(...rows.map((r) => widthOf(text(r), 600)));
  const changes = rows.map((r) => r.change), least = Math.min(...changes, 0);
  const most = Math.max(...changes, least < 0 ? 0 : 0.01), right = width - room;
  const x = linear(least, most, left + (least < 0 ? room : 0), right);
  const row = (r, i) => {
    const more = r.change >= 0, from = x(Math.min(r.change, 0));
    const bar = block(
        from, y(i), Math.max(Math.abs(x(r.change) - x(0)), 1.5), height, more ? 'orange' : 'green');
    return [
      name(i), mark(bar, `${r.what}\n${seconds(r.step_seconds)} a step, ${text(r)}`, i),
      label(
          x(r.change) + (more ? 7 : -7), y(i) + 15, text(r),
          {class: `halo strong ${more ? '' : 'end'}`})
    ];
  };
  return picture(
      'Change of a step’s time', width, bottom + 40,
      axisBelow(
          changeTicks(least, most, (right - left) / 90), x,
          {left, right: width - 2, top: 4, bottom, width}),
      line(x(0), 0, x(0), bottom, {class: 'axis'}), rows.map(row));
}

function changeTicks(least, most, count) {
  const step = niceStep((most - least) * 100, Math.max(2, count)), ticks = [];
  for (let i = Math.ceil(least * 100 / step); i * step <= most * 100 + 1e-9; ++i)
    ticks.push({at: i * step / 100, text: signed(i * step / 100, step < 1 ? 1 : 0)});
  return {ticks, title: 'change of a step’s time'};
}
