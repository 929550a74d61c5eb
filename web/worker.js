// Runs beside the page: takes steps in chunks, so that a message can stop it between two of them.
// The file that Emscripten writes stands above this one and defines createLab().
'use strict';
let api = null, run = null;

const CHUNK = 20;  // steps; accuracy is asked for, and a run stops, at whole multiples of it

/** A copy of the list that a call left at `at`; throws the lab's error if there is none. */
function list(at) {
  if (!at) throw new Error(api.UTF8ToString(api._lab_error()));
  return api.HEAPF64.slice(at >> 3, (at >> 3) + api._lab_length());
}
function text(at) {
  if (!at) throw new Error(api.UTF8ToString(api._lab_error()));
  return api.UTF8ToString(at);
}
function accuracy() {
  const percent = api._lab_accuracy();
  if (percent < 0) list(0);
  return percent;
}

const commands = {
  async load({wasm}) {
    const start = performance.now();
    api = await createLab({wasmBinary: wasm});
    return {ready: performance.now() - start};
  },
  start({id, settings, steps, target, ledgerEvery}) {
    run = null;
    const at = api._lab_settings();
    api.HEAPF64.set(settings, at >> 3);
    if (!api._lab_start()) list(0);
    run = {id, step: 0, steps, target, ledgerEvery, ms: 0, going: true};
    const points = settings[0] === 1 ? list(api._lab_points()) : null;
    setTimeout(tick, 0);
    return {started: true, points, ledger: list(api._lab_ledger())};
  },
  stop() {
    if (run) run.going = false;
    return {stopped: true};
  },
  resume() {
    if (!run) throw new Error('there is no run to go on with: start one');
    if (!run.going) {
      run.going = true;
      setTimeout(tick, 0);
    }
  },
  sweep({first, by, count}) {
    return {sweep: list(api._lab_sweep(first, by, count)), first, by};
  },
  recognise({ink, width, height}) {
    const at = api._lab_ink(width, height);  // first: it may take more memory, and HEAPU8 is another one then
    api.HEAPU8.set(ink, at);
    return {digit: list(api._lab_recognise(width, height))};
  },
  map({size}) {
    return {map: list(api._lab_map(size)), size};
  },
};

function chunk() {
  const left = Math.min(CHUNK, run.steps - run.step), start = performance.now();
  const [skipped, ...rest] = list(api._lab_steps(left));
  run.ms += performance.now() - start;
  const first = run.step;
  run.step += left;
  const percent = accuracy();
  const done = run.step >= run.steps || (run.target !== null && percent >= run.target);
  const ledger = done || run.step % run.ledgerEvery === 0 ? list(api._lab_ledger()) : null;
  postMessage({id: run.id, steps: rest, first, skipped, accuracy: percent, ms: run.ms / run.step, ledger,
               done: done ? {hash: text(api._lab_hash())} : null});
  if (done) run.going = false;
}

function tick() {
  if (!run || !run.going) return;
  try {
    chunk();
    if (run.going) setTimeout(tick, 0);
  } catch (e) {
    postMessage({id: run.id, error: e.message});
    run = null;
  }
}

self.onmessage = async ({data}) => {
  try {
    const answer = await commands[data.command](data);
    if (answer) postMessage({id: data.id, ...answer});
  } catch (e) {
    run = null;  // the page says that it has stopped
    postMessage({id: data.id, error: e.message});
  }
};
