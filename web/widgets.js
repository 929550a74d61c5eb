// The drawing pad, the map of the spirals, the bit flipper, and the questions.
'use strict';

// --- A digit

const pad = $('pad'), pen = pad.getContext('2d', {willReadFrequently: true});
let drawn = false, cursor = {x: 128, y: 60, down: false};

function clearPad() {
  pen.fillStyle = '#fff';
  pen.fillRect(0, 0, pad.width, pad.height);
  drawn = false;
  $('seen').replaceChildren();
  $('t-digits').replaceChildren();
  $('answer').textContent = run && run.loss.length ? 'Draw a digit.' : 'Train on the digits first, then draw.';
}
function stroke(x0, y0, x1, y1) {
  pen.strokeStyle = '#111';
  pen.lineWidth = 26;
  pen.lineCap = pen.lineJoin = 'round';
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1 + 0.01);
  pen.stroke();
  drawn = true;
}
function recognise() {
  if (!drawn || !run || !run.loss.length || run.v.data !== 'digits') return;
  const {data} = pen.getImageData(0, 0, pad.width, pad.height), ink = new Uint8Array(data.length / 4);
  for (let i = 0; i < ink.length; ++i) ink[i] = 255 - data[4 * i];
  send({command: 'recognise', ink, width: pad.width, height: pad.height});
}
function showDigit(numbers) {
  const pixels = numbers.slice(0, 64), p = Array.from(numbers.slice(64));
  $('seen').replaceChildren(...Array.from(pixels, (v, i) => element('rect', {x: i % 8, y: Math.floor(i / 8), width: 1.02, height: 1.02, fill: `rgb(${[0, 0, 0].fill(Math.round(255 - 15 * v)).join()})`})));
  const order = p.map((_, i) => i).sort((a, b) => p[b] - p[a]);
  $('answer').textContent = Number.isFinite(p[0]) ? `This is a ${order[0]}, with ${(100 * p[order[0]]).toFixed(1)} %.` : 'The weights are not numbers any more.';
  $('t-digits').replaceChildren(...p.map((share, digit) => {
    const row = document.createElement('tr'), name = document.createElement('th'), value = document.createElement('td'), bar = document.createElement('td'), ink = document.createElement('i');
    name.scope = 'row';
    name.textContent = digit;
    value.textContent = Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : '–';
    ink.style.width = `${100 * (share || 0)}%`;
    bar.append(ink);
    row.append(name, value, bar);
    return row;
  }));
}
{
  let from = null;
  const place = event => {
    const box = pad.getBoundingClientRect();
    return [(event.clientX - box.left) * pad.width / box.width, (event.clientY - box.top) * pad.height / box.height];
  };
  pad.addEventListener('pointerdown', event => {
    from = place(event);
    pad.setPointerCapture(event.pointerId);
    stroke(...from, ...from);
  });
  pad.addEventListener('pointermove', event => {
    if (!from) return;
    const to = place(event);
    stroke(...from, ...to);
    from = to;
  });
  for (const end of ['pointerup', 'pointercancel']) pad.addEventListener(end, () => { if (from) recognise(); from = null; });
  pad.addEventListener('keydown', event => {
    const by = {ArrowLeft: [-12, 0], ArrowRight: [12, 0], ArrowUp: [0, -12], ArrowDown: [0, 12]}[event.key];
    if (by) {
      const x = Math.min(240, Math.max(16, cursor.x + by[0])), y = Math.min(240, Math.max(16, cursor.y + by[1]));
      if (cursor.down) stroke(cursor.x, cursor.y, x, y);
      Object.assign(cursor, {x, y});
      $('pad-help').textContent = `Pen ${cursor.down ? 'down' : 'up'}, at ${Math.round(x / 2.56)} % from the left and ${Math.round(y / 2.56)} % from above.`;
    } else if (event.key === ' ') {
      cursor.down = !cursor.down;
      if (cursor.down) stroke(cursor.x, cursor.y, cursor.x, cursor.y);
      $('pad-help').textContent = `Pen ${cursor.down ? 'down' : 'up'}.`;
    } else if (event.key === 'Delete') clearPad();
    else return;
    event.preventDefault();
    if (cursor.down) recognise();
  });
  $('clear').addEventListener('click', clearPad);
}

// --- The spirals

const askMap = () => send({command: 'map', size: 80});
function showMap({map, size}) {
  const canvas = $('map'), c = canvas.getContext('2d'), cell = canvas.width / size;
  const shades = [[36, 87, 197], [214, 120, 40]];
  map.forEach((p, i) => {
    const share = Number.isFinite(p) ? p : 0.5, [a, b] = shades;
    const color = a.map((v, k) => Math.round(255 - (255 - (v + (b[k] - v) * share)) * (0.15 + 0.5 * Math.abs(2 * share - 1))));
    c.fillStyle = `rgb(${color.join()})`;
    c.fillRect(i % size * cell, Math.floor(i / size) * cell, cell + 0.5, cell + 0.5);
  });
  const at = v => (v + 2) / 4 * canvas.width;
  for (let i = 0; i < run.points.length; i += 3) {
    const x = at(run.points[i]), y = at(run.points[i + 1]), second = run.points[i + 2];
    c.fillStyle = `rgb(${shades[second].join()})`;
    c.beginPath();
    if (second) c.rect(x - 2, y - 2, 4, 4);  // told apart by shape, too
    else c.arc(x, y, 2.2, 0, 7);
    c.fill();
  }
}

// --- Bits

let bits = encode(FORMATS.float16, 2 ** -20);
$('format').append(...Object.entries(FORMATS).map(([key, {name}]) => new Option(name, key)));
const format = () => FORMATS[$('format').value];

function numberFrom(text) {
  const found = /^\s*([-+]?)(\d*\.?\d+)\s*\^\s*([-+]?\d+)\s*$/.exec(text);
  if (found) return (found[1] === '-' ? -1 : 1) * Number(found[2]) ** Number(found[3]);
  return text.trim() === '' ? NaN : Number(text);
}
function valueText(x) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? 'NaN' : x > 0 ? '∞' : '−∞';
  const e = x === 0 ? 0 : Math.log2(Math.abs(x));
  return x !== 0 && Number.isInteger(e) ? `${x < 0 ? '−' : ''}${power(e)} = ${x}` : String(x);
}
function showBits() {
  const f = format(), n = bitsOf(f), d = decode(f, bits);
  const groups = [['sign', 'sign', 1], ['exponent', 'exponent', f.exponent], ['mantissa', 'fraction', f.mantissa]];
  let at = n;
  const focused = document.activeElement?.dataset?.bit;
  $('bits').replaceChildren(...groups.map(([kind, label, count]) => {
    const group = document.createElement('div'), name = document.createElement('span'), row = document.createElement('div');
    group.className = `group ${kind}`;
    name.textContent = label;
    for (let i = 0; i < count; ++i) {
      const bit = --at, button = document.createElement('button');
      button.type = 'button';
      button.textContent = bits >> bit & 1;
      button.dataset.bit = bit;
      button.setAttribute('aria-pressed', String(Boolean(bits >> bit & 1)));
      button.setAttribute('aria-label', `${label} bit ${bit}`);
      button.addEventListener('click', () => { bits ^= 1 << bit; showBits(); });
      row.append(button);
    }
    group.append(name, row);
    return group;
  }));
  if (focused !== undefined) $('bits').querySelector(`[data-bit="${focused}"]`)?.focus();
  const kind = {zero: 'zero', subnormal: 'a subnormal number', normal: 'a normal number', infinite: 'infinite', 'not a number': 'not a number'}[d.kind];
  $('bits-value').textContent = `${valueText(d.value)}: ${kind}${Number.isFinite(d.value) ? `; the next number is ${power(Math.log2(d.step))} away` : ''}.`;
  showFormats(d.value);
}
function showFormats(value) {
  const typed = numberFrom($('number').value), x = Number.isNaN(typed) ? value : typed;
  fillTable($('t-formats'), `${x} in each format`, ['Format', 'Nearest number', 'Kind', 'Off by', 'Smallest', 'Largest'], Object.values(FORMATS).map(f => {
    const d = decode(f, encode(f, x)), off = Number.isFinite(d.value) && x !== 0 ? Math.abs(d.value - x) / Math.abs(x) : NaN;
    const largest = f.infinities ? (((1 << f.exponent) - 1) << f.mantissa) - 1 : (1 << (f.exponent + f.mantissa)) - 2;
    return [f.name, valueText(d.value), d.kind, Number.isNaN(off) ? '–' : percent(off), power(1 - f.bias - f.mantissa), decode(f, largest).value.toPrecision(4).replace(/\.?0+(e|$)/, '$1')];
  }));
}
$('format').addEventListener('change', () => {
  const x = numberFrom($('number').value);
  bits = encode(format(), Number.isNaN(x) ? 1 : x);
  showBits();
});
$('number').addEventListener('input', () => {
  const x = numberFrom($('number').value);
  $('number').setCustomValidity(Number.isNaN(x) ? 'A number, such as 0.1 or 2^-20' : '');
  if (!Number.isNaN(x)) { bits = encode(format(), x); showBits(); }
});

// --- Questions

const QUESTIONS = [
  ['Does float16 need a scale when nothing is weighted?', {precision: 'fp16', weight: '1'},
   'No. At weight 1 it reaches 98 %, as float32 does. The smallest gradients are lost, and nobody misses them.'],
  ['And with a loss weight of 1e-5, as small as a mean over very many values?', {precision: 'fp16', weight: '1e-5'},
   'It fails: about 17 %. Nearly all gradients lie below 2⁻²⁵, where float16 has only zero.'],
  ['What does a GradScaler change?', {precision: 'scaled', weight: '1e-5'},
   '98 % again. The scale starts at 2¹⁶ and doubles every 20 steps until a gradient overflows; that step is skipped and the scale halved.'],
  ['Is a fixed scale of 2⁴ enough, where nine of ten output gradients are lost?', {precision: 'scaled', weight: '1e-5', law: 'fixed', scale: '4'},
   'Yes: it trains. A weight’s gradient is a sum over the batch, and the largest terms survive. Look at “How much may be lost?”: the share that is lost and the error are not the same.'],
  ['And a fixed scale of 2⁴²?', {precision: 'scaled', weight: '1e-5', law: 'fixed', scale: '42'},
   'Every step overflows and is skipped. Nothing is learned, but no weight is harmed.'],
  ['Does bfloat16 need a scale?', {precision: 'bf16', weight: '1e-7'},
   'No: it has the exponents of float32. But its numbers are coarse: the error of its gradients stays at 1 to 3 % at every scale, and that of scaled float16 is ten times smaller.'],
];
function addQuestions() {
  $('questions').append(...QUESTIONS.map(([question, settings, answer]) => {
    const details = document.createElement('details'), summary = document.createElement('summary'), ask = document.createElement('p'), reply = document.createElement('details'), open = document.createElement('summary'), text = document.createElement('p'), button = document.createElement('button');
    summary.textContent = question;
    button.type = 'button';
    button.textContent = 'Set and run';
    button.addEventListener('click', () => { setValues({...DEFAULTS, ...settings}); start(); $('training-title').scrollIntoView({behavior: still.matches ? 'auto' : 'smooth'}); });
    ask.append('Say what you expect, then run it. ', button);
    open.textContent = 'Answer';
    text.textContent = answer;
    reply.append(open, text);
    details.append(summary, ask, reply);
    return details;
  }));
}
