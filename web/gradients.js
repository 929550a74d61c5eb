// Where the gradients lie, and how much of them may be lost.
'use strict';

const SLOTS = 512;
const SWEEP = {command: 'sweep', first: -8, by: 2, count: 33};
let shift = 16, sweepRows = null;

/** A ledger's numbers, in the order of exports.cpp; returns it and where the next one begins. */
function ledgerAt(numbers, at) {
  const ledger = {step: numbers[at], scale: numbers[at + 1], layers: []};
  const layers = numbers[at + 2];
  for (at += 3; ledger.layers.length < layers; at += 1 + 3 * SLOTS) {
    const part = i => ledgerOf(numbers.subarray(at + 1 + i * SLOTS, at + 1 + (i + 1) * SLOTS));
    ledger.layers.push({error: numbers[at], stored: part(0), exact: part(1), weight: part(2)});
  }
  return [ledger, at];
}
const nameOf = (i, n) => i + 1 === n ? 'out' : `fc${i + 1}`;

/** Rounded to zero by the pass itself: zeros that the float32 pass does not have. Null if a number
    overflowed, because what follows it says nothing. */
function flushed({stored, exact}) {
  if (stored.nans + stored.infinities) return null;
  return exact.numbers ? Math.max(0, stored.zeros - exact.zeros) / exact.numbers : 0;
}

const errorText = e => e === 0 ? '0' : !Number.isFinite(e) ? 'overflow' : e < 1e-4 ? '< 0.01 %' : `${e < 1 ? (100 * e).toPrecision(2) : Math.round(100 * e)} %`;

function takeLedger(numbers, last = false) {
  [run.ledger] = ledgerAt(numbers, 0);
  if ($('follow').checked) setShift(Math.round(Math.log2(run.ledger.scale)), false);
  if (last || !still.matches || run.loss.length === 0) drawLedger();
}

function setShift(value, byHand = true) {
  const slider = $('shift');
  shift = Math.min(Number(slider.max), Math.max(Number(slider.min), value));
  slider.value = shift;
  $('shift-out').textContent = power(shift);
  slider.setAttribute('aria-valuetext', `2 to the power of ${shift}`);
  if (byHand) {
    $('follow').checked = false;
    drawLedger();
  }
  drawSweep();
}

function drawLedger() {
  if (!run || !run.ledger) return;
  const {ledger} = run, n = ledger.layers.length;
  ledgerChart($('ledger'), {rows: ledger.layers.map((l, i) => ({label: nameOf(i, n), ledger: l.exact})),
                            shift, from: -48, to: 23, zones: HALF, drag: setShift});
  const real = Math.round(Math.log2(ledger.scale));
  ledgerChart($('weights'), {rows: ledger.layers.map((l, i) => ({label: nameOf(i, n), ledger: l.weight})),
                             shift: -real, from: -56, to: 7});
  fillTable($('t-weights'), `Gradients of the weights of step ${ledger.step + 1}, by size`,
            ['Layer', 'Zero', 'Smallest', 'Median', 'Largest', 'Not finite'], ledger.layers.map(({weight: w}, i) => [nameOf(i, n), w.zeros,
    ...[0, 0.5, 1].map(share => w.numbers ? `about ${power(quantile(w, share) - real)}` : '–'), w.nans + w.infinities]));
  const half = run.v.precision === 'fp16' || run.v.precision === 'scaled';
  const head = ['Layer', `Lost at ${power(shift)}`, 'Subnormal', 'Infinite'];
  head.push(half ? `Really lost at ${power(real)}` : 'Really lost', 'Error of the weights’ gradient');
  fillTable($('t-ledger'), `Output gradients of step ${ledger.step + 1} that are not zero`, head, ledger.layers.map((l, i) => {
    const f = fates(l.exact, shift), of = count => percent(l.exact.numbers ? count / l.exact.numbers : 0), lost = flushed(l);
    return [nameOf(i, n), of(f.lost), of(f.subnormal), of(f.infinite), lost === null ? 'overflow' : percent(lost), errorText(l.error)];
  }));
}

// --- The same step at many scales

function showSweep({sweep, first, by}) {
  sweepRows = [];
  for (let at = 0, i = 0; at < sweep.length; ++i) {
    const [ledger, next] = ledgerAt(sweep, at);
    sweepRows.push({exponent: first + by * i, layers: ledger.layers.map(l => ({lost: flushed(l), error: l.error}))});
    at = next;
  }
  drawSweep();
  const n = sweepRows[0].layers.length, names = sweepRows[0].layers.map((_, i) => nameOf(i, n));
  fillTable($('t-sweep'), 'Lost, and the error of the weights’ gradient', ['Scale', ...names.flatMap(name => [`${name} lost`, `${name} error`])],
            sweepRows.map(r => [`${power(r.exponent)}`, ...r.layers.flatMap(l => [l.lost === null ? 'overflow' : percent(l.lost), errorText(l.error)])]));
  $('sweep-legend').replaceChildren(...names.map((name, i) => {
    const span = document.createElement('span'), key = element('svg', {viewBox: '0 0 34 8', 'aria-hidden': 'true'});
    key.append(element('path', {d: 'M0 4L34 4', class: `line l${i}`}));
    span.append(key, name);
    return span;
  }));
  sayUseful();
}

/** The scales at which every layer's weights get a gradient within 1 %. */
function sayUseful() {
  const good = sweepRows.filter(r => r.layers.every(l => l.error < 0.01)).map(r => r.exponent);
  const worst = good.length ? Math.max(...sweepRows.filter(r => r.exponent === good[0])[0].layers.map(l => l.lost ?? 0)) : 0;
  $('sweep-text').textContent = !good.length ? 'At no scale are all gradients within 1 % of float32.' :
    `Within 1 % of float32 from ${power(good[0])} to ${power(good.at(-1))}` +
    (worst > 0.1 ? `, although at the first of them up to ${percent(worst)} of a layer’s output gradients are lost.` : '.');
}

function drawSweep() {
  if (!sweepRows) return;
  const from = sweepRows[0].exponent, to = sweepRows.at(-1).exponent, ticks = [];
  for (let e = Math.ceil(from / 8) * 8; e <= to; e += 8) ticks.push([e, power(e)]);
  const x = {from, to, ticks}, lines = value => sweepRows[0].layers.map((_, i) => ({
    class: `l${i}`, points: sweepRows.map(r => [r.exponent, value(r.layers[i])])}));
  lineChart($('c-lost'), {series: lines(l => l.lost === null ? NaN : 100 * l.lost), x, line: shift,
                          y: {from: 0, to: 100, ticks: [0, 50, 100].map(v => [v, String(v)])}});
  lineChart($('c-error'), {series: lines(l => Math.max(l.error, 1e-5)), x, line: shift, height: 150,
                           y: {log: true, from: 1e-5, to: 10, ticks: [[1e-4, '0.01 %'], [1e-2, '1 %'], [1, '100 %']]}});
}
function forgetSweep() {
  sweepRows = null;
  $('c-lost').replaceChildren();
  $('c-error').replaceChildren();
  $('sweep-text').textContent = 'Measured at the end of a run, and whenever you ask.';
}

$('shift').addEventListener('input', () => setShift(Number($('shift').value)));
$('follow').addEventListener('change', () => {
  if (!$('follow').checked || !run || !run.ledger) return;
  setShift(Math.round(Math.log2(run.ledger.scale)), false);
  drawLedger();
});
$('sweep').addEventListener('click', () => send(SWEEP));
