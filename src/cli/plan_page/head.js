// ---- Head: verdict and the few numbers that matter.

function tile(name, value, ...more) {
  return el(
      'div', {}, el('dt', {}, name), el('dd', {class: 'big'}, value),
      el('dd', {}, more.filter(Boolean).map((m) => el('span', {}, m))));
}

function timeTiles(t) {
  if (!t) return [];
  const range = span(t.low_seconds, t.high_seconds, seconds);
  return [
    known(t.run_seconds) &&
        tile(
            'Time to finish', seconds(t.run_seconds),
            span(t.run_low_seconds, t.run_high_seconds, seconds),
            known(plan.steps) && counted(plan.steps, 'step')),
    costTile(plan.cost),
    known(t.step_seconds) &&
        tile(
            'A step', seconds(t.step_seconds), range,
            known(t.step_tokens) && counted(t.step_tokens, 'token')),
    known(t.tokens_per_second) &&
        tile('Throughput', grouped(t.tokens_per_second), 'tokens/s', perGpu(t.tokens_per_second)),
    ...mfuTiles(t.mfu)
  ];
}

function perGpu(tokens) {
  const gpus = plan.run && plan.run.gpus;
  return gpus > 1 && `${grouped(tokens / gpus)} tokens/s per GPU`;
}

// Both conventions, since they differ by up to a fifth.
function mfuTiles(mfu) {
  if (!mfu) return [];
  const peak = known(mfu.peak_flops) && `of ${flops(mfu.peak_flops)} per GPU`;
  const one = (name, share, formula) =>
      known(share) && tile(name, percent(share, 1), formula, peak);
  return [
    one('MFU, whole attention', mfu.whole, '6N + 12Lhs FLOPs a token (PaLM)'),
    one('MFU, causal attention', mfu.causal, '6(N − Vh) + 6Lhs FLOPs a token (NeMo)')
  ];
}

function costTile(c) {
  return c &&
      tile('Cost', dollars(c.dollars), span(c.low_dollars, c.high_dollars, dollars),
           c.instance && `${c.instance}, ${dollars(c.dollars_per_hour)} an hour`,
           c.date && `prices of ${c.date}`);
}

function modelTiles() {
  const run = plan.run || {}, model = plan.model || {};
  return [
    known(model.parameters) &&
        tile(
            'Parameters', amount(model.parameters),
            known(model.trainable) && model.trainable !== model.parameters &&
                `${amount(model.trainable)} of them trained`),
    known(run.global_batch_size) &&
        tile(
            'Batch', counted(run.global_batch_size, 'sample'),
            known(run.micro_batch_size) && `micro-batches of ${grouped(run.micro_batch_size)}`,
            known(run.sequence) && `sequences of ${grouped(run.sequence)} tokens`)
  ];
}

function memoryMeter(m) {
  if (!m || !known(m.peak_bytes) || !known(m.available_bytes)) return null;
  const share = percent(m.peak_bytes / m.available_bytes);
  const rest = ` of ${bytes(m.available_bytes)} of memory on ${
      plan.run && plan.run.gpu ? 'each GPU' : 'the device'}, ${share}`;
  return el(
      'div', {class: 'meter'}, el('b', {}, bytes(m.peak_bytes)), rest,
      drawIn(el('div', {}), (width) => meter(width, m, bytes(m.peak_bytes) + rest)));
}

function meter(width, {peak_bytes, available_bytes}, title) {
  const most = Math.max(peak_bytes, available_bytes), over = peak_bytes > available_bytes;
  const used = width * Math.min(peak_bytes, available_bytes) / most;
  const there = width * available_bytes / most, fill = `var(--${over ? 'bad' : 'good'})`;
  return picture(
      title, width, 20, rect(0, 3, there, 14, {rx: 4, fill: 'var(--edge)'}),
      rect(0, 3, used, 14, {rx: 4, fill}), over && rect(there, 3, width - there, 14, kOver),
      over && line(there, 0, there, 20, {stroke: 'var(--ink)', 'stroke-width': 2}));
}

function headline() {
  const run = plan.run || {}, name = (plan.model && plan.model.name) || 'A training run';
  return name + (run.gpu ? ` on ${gpusText(run.gpus || 1, run.gpu)}` : '') +
      (run.machines > 1 ? ` in ${grouped(run.machines)} machines` : '');
}

// "fits: needs 1 GiB" below "Fits" is "Needs 1 GiB".
const verdictText = () =>
    sentence(String(plan.verdict || '').replace(/^(fits|does not fit): /, ''));

function head() {
  const first = !plan.fits && plan.fits_with && plan.fits_with[0];
  const tiles =
      [...timeTiles(plan.time), ...(plan.time ? [] : [costTile(plan.cost)]), ...modelTiles()];
  return el(
      'header', {},
      el('p', {class: `verdict ${plan.fits ? 'good' : 'bad'}`},
         plan.fits ? 'Fits' : 'Does not fit'),
      el('h1', {}, headline()), el('p', {class: 'lead'}, verdictText()),
      first &&
          el('p', {class: 'lead'}, 'Fits with ', el('b', {}, first.change), slower(first, ', ')),
      el('div', {class: 'card'}, memoryMeter(plan.memory),
         tiles.some(Boolean) && el('dl', {class: 'tiles'}, tiles)));
}
