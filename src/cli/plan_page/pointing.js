// ---- Tooltips, and arrow keys within a drawing: one stop of the tab key each.

const tip = document.getElementById('tip');
let told = null;  // the shape that the tooltip is about

function hideTip() {
  tip.hidden = true;
  told = null;
  for (const link of document.querySelectorAll('.link.on')) link.classList.remove('on');
}

function showTip(node) {
  hideTip();
  told = node;
  tip.textContent = node.dataset.tip;
  tip.hidden = false;
  placeTip(node);
  const link = node.dataset.link && document.getElementById(node.dataset.link);
  if (link) link.classList.add('on');
}

function placeTip(node) {
  const at = node.getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = Math.min(middleOf(node) - own.width / 2, innerWidth - own.width - 6);
  const above = at.top - own.height - 8,
        below = Math.min(at.bottom + 8, innerHeight - own.height - 6);
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${above > 6 ? above : below}px`;
}

function middleOf(node) {
  const {left, right} = node.getBoundingClientRect();
  return (left + right) / 2;
}

// The one that an arrow key leads to; up and down lead to the nearest of another row.
function nextMark(node, key) {
  const all = [...node.closest('svg').querySelectorAll('.mark')], i = all.indexOf(node);
  if (key === 'Home') return all[0];
  if (key === 'End') return all[all.length - 1];
  if (key === 'ArrowRight') return all[i + 1];
  if (key === 'ArrowLeft') return all[i - 1];
  const step = key === 'ArrowDown' ? 1 : -1;
  if (node.dataset.row == null) return all[i + step];
  const x = middleOf(node), row = Number(node.dataset.row) + step;
  const far = (m) => Math.abs(middleOf(m) - x);
  return all.filter((m) => Number(m.dataset.row) === row).sort((a, b) => far(a) - far(b))[0];
}

function onKey(event) {
  if (event.key === 'Escape') return hideTip();
  const from = event.target.closest && event.target.closest('.mark');
  if (!from || !/^(Arrow|Home|End)/.test(event.key)) return;
  event.preventDefault();
  const to = nextMark(from, event.key);
  if (!to) return;
  from.setAttribute('tabindex', -1);
  to.setAttribute('tabindex', 0);
  to.focus();
}

function listen() {
  const marked = (e) => e.target.closest && e.target.closest('.mark');
  for (const kind of ['pointerover', 'focusin'])
    document.addEventListener(kind, (e) => marked(e) && showTip(marked(e)));
  for (const kind of ['pointerout', 'focusout'])
    document.addEventListener(kind, (e) => marked(e) && hideTip());
  document.addEventListener('keydown', onKey);
  document.addEventListener('scroll', () => told && placeTip(told), {capture: true, passive: true});
}
