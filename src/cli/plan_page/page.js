// ---- The run, its needs, the sources of constants, the command.

function runSection() {
  const run = plan.run || {}, batch = plan.batch || {};
  const number = (n, noun) => known(n) && (noun ? counted(n, noun) : grouped(n));
  const box = facts([
    ['GPU', run.gpu], ['GPUs', number(run.gpus)], ['Machines', number(run.machines)],
    ['Mesh', run.mesh],
    ['Precision', run.precision + (run.products === 'tf32' ? ' (TF32)' : '')],
    ['Activations', run.activations],
    ['Optimizer', run.optimizer], ['Micro-batch', number(run.micro_batch_size, 'sample')],
    ['Global batch', number(run.global_batch_size, 'sample')],
    ['Sequence', number(run.sequence, 'token')], ['Planned batch', number(batch.tokens, 'token')],
    ['Steps', number(plan.steps)]
  ]);
  return box.children.length ? section('run', 'The run', [], [box]) : null;
}

function needsSection() {
  const n = plan.needs || {};
  const size = (v) => known(v) && bothBytes(v), rate = (v) => known(v) && `${amount(v)} tokens/s`;
  const box = facts([
    ['Memory of each host', size(n.host_memory_bytes)],
    ['Cores of each host', known(n.cores) && grouped(n.cores)],
    ['A checkpoint', size(n.checkpoint_bytes)], ['Data', size(n.data_bytes)],
    ['Disk in all', size(n.disk_bytes)],
    ['Input that the GPUs take', rate(n.input_tokens_per_second)],
    ['Input that the tokenizer makes', rate(n.tokenizer_tokens_per_second)]
  ]);
  return box.children.length ? section('needs', 'What else it needs', [], [box]) : null;
}

function sourcesSection() {
  const rows = (plan.sources || []).map((s) => [s.what, s.value, s.origin]);
  if (!rows.length) return null;
  const columns = ['what', 'value', 'origin'];
  return section(
      'sources', 'Where the constants come from', [], [table('sources', columns, rows, true)]);
}

// A line breaks between words alone, since options begin with hyphens.
function commandSection() {
  if (!plan.command) return null;
  const words = plan.command.split(' ').flatMap((w) => [el('span', {class: 'word'}, w), ' ']);
  const code = el('code', {}, words.slice(0, -1)),
        said = el('span', {role: 'status', class: 'note'});
  const copy = el('button', {}, 'Copy');
  copy.addEventListener('click', async () => {
    said.textContent = await copied(plan.command, code);
  });
  return section('command', 'The command', [], [el('pre', {tabindex: 0}, code), copy, ' ', said]);
}

async function copied(text, node) {
  try {
    await navigator.clipboard.writeText(text);
    return 'Copied.';
  } catch {
    getSelection().selectAllChildren(node);
    return document.execCommand('copy') ? 'Copied.' : 'Selected: copy it with the keyboard.';
  }
}

// ---- Light, dark and paper.

const themeButton = document.getElementById('theme');
const shownTheme = () => document.documentElement.dataset.theme;

function setTheme(theme) {
  const other = theme === 'dark' ? 'light' : 'dark';
  document.documentElement.dataset.theme = theme;
  themeButton.textContent = other === 'dark' ? 'Dark' : 'Light';
  themeButton.setAttribute('aria-label', `Show the page in ${other} colours`);
  redraw();
}

// As the system says, or the page's address (plan.html#dark), until the button is pressed.
function followTheme() {
  const system = matchMedia('(prefers-color-scheme: dark)');
  const asked = location.hash.match(/^#(light|dark)$/);
  let chosen = asked && asked[1];
  const wanted = () => chosen || (system.matches ? 'dark' : 'light');
  themeButton.hidden = false;
  themeButton.addEventListener('click', () => {
    chosen = shownTheme() === 'dark' ? 'light' : 'dark';
    setTheme(chosen);
  });
  system.addEventListener('change', () => setTheme(wanted()));
  addEventListener('beforeprint', () => setTheme('light'));
  addEventListener('afterprint', () => setTheme(wanted()));
  setTheme(wanted());
}

// ---- Start.

function contents(sections) {
  const link = (s) => el('a', {href: `#${s.id}`}, s.querySelector('h2').textContent);
  return el(
      'nav', {'aria-label': 'Contents'}, el('ul', {}, sections.map((s) => el('li', {}, link(s)))));
}

function start() {
  const sections = [
    memorySection(), timeSection(), scalingSection(), offersSection(), needsSection(), runSection(),
    sourcesSection(), commandSection()
  ].filter(Boolean);
  document.body.append(patterns());
  main.append(head(), contents(sections), ...sections);
  listen();
  followTheme();
  let drawn = innerWidth;
  addEventListener('resize', () => {
    if (innerWidth !== drawn) requestAnimationFrame(redraw);
    drawn = innerWidth;
  });
}

start();
