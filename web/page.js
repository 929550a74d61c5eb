// The page: the worker that trains, and what it says about a run.
'use strict';

const LEDGER_EVERY = 40;  // steps
const still = matchMedia('(prefers-reduced-motion: reduce)');

/** What tests read: ready (ms), done ({accuracy, skipped, hash, …}) and error. */
window.lab = {ready: null, done: null, error: null};

// --- The worker

let worker = null;
/** Every message carries the number of the run that it is about, and so does its answer. */
const send = (message, moved = []) => worker.postMessage({id: run ? run.id : 0, ...message}, moved);

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), c => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).arrayBuffer();
}
function trouble(message) {
  window.lab.error = message;
  $('trouble').textContent = message;
  $('trouble').hidden = false;
  $('status').textContent = 'Stopped.';
  if (run) run.done = true;  // the worker cannot go on with it
  setRunning(false);
}
async function boot() {
  if (typeof WebAssembly !== 'object' || typeof DecompressionStream !== 'function')
    return trouble('This browser has no WebAssembly or no DecompressionStream; any browser since 2023 has both.');
  try {
    const source = URL.createObjectURL(new Blob([$('worker-source').textContent], {type: 'text/javascript'}));
    worker = new Worker(source);
    worker.onmessage = ({data}) => answer(data);
    worker.onerror = event => trouble(`The worker failed: ${event.message}`);
    const wasm = await unpack($('wasm').textContent);
    send({command: 'load', wasm}, [wasm]);
  } catch (e) {
    trouble(`The library does not start: ${e.message}`);
  }
}
function answer(message) {
  if (run && message.id !== run.id) return;  // of a run that another one has replaced
  if (message.error) trouble(message.error);
  else if ('ready' in message) ready(message.ready);
  else if (message.started) started(message);
  else if (message.steps) stepped(message);
  else if (message.sweep) showSweep(message);
  else if (message.digit) showDigit(message.digit);
  else if (message.map) showMap(message);
}

// --- A run

/** steps: [loss, scale, skipped] of each; accuracy: [step, percent]. */
let run = null, before = null, runs = 0, state = 'loading';

function setRunning(on) {
  state = on ? 'running' : run && !run.done ? 'stopped' : 'idle';
  $('pause').disabled = state === 'idle';
  $('pause').textContent = state === 'stopped' ? 'Continue' : 'Stop';
  $('sweep').disabled = !run;
  $('go').disabled = window.lab.ready === null;
}
function ready(ms) {
  window.lab.ready = ms;
  setRunning(false);
  start();
}
function start() {
  if (window.lab.ready === null) return;
  const wrong = wrongField();
  if (wrong) {
    $('status').textContent = `Not started. ${wrong}`;
    misread = null;  // pressed again, it starts with what the fields show
    form.reportValidity();
    return;
  }
  writeAddress();
  $('trouble').hidden = true;
  Object.assign(window.lab, {done: null, error: null});
  if (run && run.loss.length) before = run;
  const v = values();
  run = {id: ++runs, v, loss: [], scale: [], skips: [], accuracy: [], target: Number(v.steps), ledger: null, done: false};
  $('status').textContent = 'Training …';
  $('hash').textContent = '–';
  setRunning(true);
  send({command: 'start', settings: numbersOf(v), steps: Number(v.steps),
        target: v.target === '' ? null : Number(v.target), ledgerEvery: LEDGER_EVERY});
}
function started({points, ledger}) {
  run.points = points;
  takeLedger(ledger);
  forgetSweep();
  if (points) askMap();
}
function stepped({steps, first, skipped, accuracy, ms, ledger, done}) {
  for (let i = 0, step = first + 1; i < steps.length; i += 3, ++step) {
    run.loss.push([step, steps[i]]);
    run.scale.push([step, steps[i + 1]]);
    if (steps[i + 2]) run.skips.push([step, steps[i + 1]]);
  }
  const step = run.loss.length;
  run.accuracy.push([step, accuracy]);
  Object.assign(run, {skipped, ms});
  if (ledger) takeLedger(ledger, Boolean(done));
  showNumbers();
  if (done) finish(done);
  else if (!still.matches) drawCurvesSoon();
  if (run.points && (ledger || done) && (done || !still.matches)) askMap();
}
function finish({hash}) {
  run.done = true;
  setRunning(false);
  drawCurves();
  $('hash').textContent = hash;
  const [step, percent] = run.accuracy.at(-1);
  const scaled = run.v.precision === 'scaled' ? `, ${run.skipped} steps skipped` : '';
  $('status').textContent = `Done: ${percent.toFixed(2)} % of the test samples after ${step} steps${scaled}.`;
  window.lab.done = {accuracy: percent, steps: step, skipped: run.skipped, hash, ms: run.ms, loss: run.loss.at(-1)[1]};
  fillCurves();
  recognise();
  send(SWEEP);
}
function pause() {
  if (state === 'running') {
    send({command: 'stop'});
    setRunning(false);
    $('status').textContent = `Stopped after ${run.loss.length} steps.`;
    drawCurves();
    drawLedger();
    recognise();
  } else if (state === 'stopped') {
    setRunning(true);
    $('status').textContent = 'Training …';
    send({command: 'resume'});
  }
}

// --- Numbers and curves

const lossText = x => Number.isFinite(x) ? x.toPrecision(3) : 'not a number';
const scaleText = s => s === 1 ? '1' : `${power(Math.log2(s))}`;

function showNumbers() {
  const [step, loss] = run.loss.at(-1);
  $('n-step').textContent = step;
  $('n-loss').textContent = lossText(loss);
  $('n-accuracy').textContent = `${run.accuracy.at(-1)[1].toFixed(1)} %`;
  $('n-scale').textContent = run.v.precision === 'scaled' ? scaleText(run.scale.at(-1)[1]) : 'none';
  $('n-skipped').textContent = run.skipped;
  $('n-time').textContent = `${run.ms.toFixed(2)} ms`;
}

/** At most once for each picture of the screen: steps may come quicker. */
let drawing = 0;
function drawCurvesSoon() {
  drawing ||= requestAnimationFrame(() => {
    drawing = 0;
    if (run.loss.length) drawCurves();
  });
}
function drawCurves() {
  const both = key => [...(before ? [{points: before[key], class: 'before'}] : []), {points: run[key], class: 'now'}];
  const most = Math.max(run.target, before ? before.loss.length : 0), x = {from: 0, to: most, ticks: stepTicks(most)};
  const finite = [...run.loss, ...(before ? before.loss : [])].map(p => p[1]).filter(v => Number.isFinite(v) && v > 0);
  const low = Math.min(-1, Math.floor(Math.log10(Math.min(1, ...finite)))), high = Math.max(1, Math.ceil(Math.log10(Math.max(1, ...finite))));
  const decades = [];
  for (let e = low, by = Math.ceil((high - low) / 4); e <= high; e += by) decades.push([10 ** e, String(Number((10 ** e).toPrecision(1)))]);
  lineChart($('c-loss'), {series: both('loss'), x, y: {log: true, from: 10 ** low, to: 10 ** high, ticks: decades}});
  lineChart($('c-accuracy'), {series: both('accuracy'), x, y: {from: 0, to: 100, ticks: [0, 25, 50, 75, 100].map(v => [v, String(v)])}});
  const logs = points => points.map(([s, v]) => [s, Math.log2(v)]);
  const all = logs([...run.scale, ...(before ? before.scale : [])]).map(p => p[1]);
  let bottom = Math.min(...all), top = Math.max(...all);
  if (top - bottom < 4) [bottom, top] = [bottom - 2, top + 2];
  const ticks = [];
  for (let e = Math.floor(bottom), by = Math.max(1, Math.ceil((top - bottom) / 4)); e <= top; e += by) ticks.push([e, power(e)]);
  lineChart($('c-scale'), {series: [...(before ? [{points: logs(before.scale), class: 'before'}] : []), {points: logs(run.scale), class: 'now'}],
                           marks: logs(run.skips), x, y: {from: bottom, to: top, ticks}});
}

function fillCurves() {
  const rows = [], by = Math.max(1, Math.ceil(run.accuracy.length / 12));
  for (let i = by - 1; i < run.accuracy.length; i += by) {
    const [step, percent] = run.accuracy[i];
    rows.push([step, lossText(run.loss[step - 1][1]), percent.toFixed(1), scaleText(run.scale[step - 1][1]),
               run.skips.filter(s => s[0] <= step).length]);
  }
  fillTable($('t-curves'), 'Every few steps', ['Step', 'Loss', 'Accuracy, %', 'Scale', 'Skipped so far'], rows);
}

// --- Start

form.addEventListener('submit', event => { event.preventDefault(); start(); });
form.addEventListener('input', () => { misread = null; showSettings(); if (form.checkValidity()) writeAddress(); });
$('pause').addEventListener('click', pause);
$('reset').addEventListener('click', () => { setValues(DEFAULTS); run = before = null; start(); });
addEventListener('hashchange', () => {
  if (new URLSearchParams(location.hash.slice(1)).toString() === addressText()) return;  // the page's own change
  readAddress();
  start();
});
let resizing = 0;
addEventListener('resize', () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    if (!run || !run.loss.length) return;
    drawCurves();
    drawLedger();
    drawSweep();
  }, 150);
});
readAddress();
addQuestions();
clearPad();
showBits();
boot();
