// Charts as SVG: lines over steps or scales, and ledgers, which count numbers by powers of two. They
// know nothing of the lab; colours are those of the classes in style.css.
'use strict';

const NS = 'http://www.w3.org/2000/svg';

function element(name, attributes = {}, children = []) {
  const e = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  for (const child of [].concat(children)) e.append(child);
  return e;
}
const words = (x, y, text, attributes = {}) => element('text', {x, y, ...attributes}, text);
/** 2 with a raised exponent, for SVG; a hyphen becomes a minus. */
const power = e => `2${[...String(e)].map(c => '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'['-0123456789'.indexOf(c)]).join('')}`;
const percent = share => share === 0 ? '0 %' : share < 0.0005 ? '< 0.1 %' : `${(100 * share).toFixed(1)} %`;

// --- Ledgers

/** From 512 counts: slot 2·e + p counts numbers of exponent e − 127, those with p = 1 are exact
    powers of two. Slot 1 counts zeros, slot 510 NaN, slot 511 infinities; slot 0 what is below. */
function ledgerOf(slots) {
  const bins = [];
  let numbers = 0;
  for (let e = 0; e < 255; ++e) {
    const count = slots[2 * e] + (e ? slots[2 * e + 1] : 0);
    if (!count) continue;
    bins.push({exponent: e - 127, count, powers: e ? slots[2 * e + 1] : 0});
    numbers += count;
  }
  return {bins, numbers, zeros: slots[1], nans: slots[510], infinities: slots[511]};
}

/** The exponent below which at most that share of the numbers lies. */
function quantile(ledger, share) {
  let seen = 0;
  for (const {exponent, count} of ledger.bins) {
    seen += count;
    if (seen > 0 && seen >= share * ledger.numbers) return exponent;
  }
  return NaN;
}

/** Where a 16-bit format loses numbers: below `lost` they round to 0 (an exact power there, too, to
    even), below `normal` they have fewer bits, from `infinite` on they are too large. */
const HALF = {lost: -25, normal: -14, infinite: 16};

/** What becomes of a ledger's numbers times 2^shift in the format, as counts. */
function fates(ledger, shift, format = HALF) {
  const f = {lost: 0, subnormal: 0, normal: 0, infinite: 0};
  for (const {exponent, count, powers} of ledger.bins) {
    const e = exponent + shift;
    if (e < format.lost) f.lost += count;
    else if (e === format.lost) { f.lost += powers; f.subnormal += count - powers; }
    else if (e < format.normal) f.subnormal += count;
    else if (e < format.infinite) f.normal += count;
    else f.infinite += count;
  }
  return f;
}

const ZONES = [['lost', 'lost'], ['subnormal', 'subnormal'], ['normal', 'normal'], ['infinite', 'infinite']];

/** One row of bars for each of `rows` ({label, ledger}), over exponents from `from` to `to`; numbers
    outside are counted at the edges. `zones`: a format, or null for none. With `drag`, a pointer
    moves the bars, and drag(shift) is called. */
function ledgerChart(svg, {rows, shift = 0, from, to, zones = null, drag = null}) {
  const width = Math.max(300, svg.clientWidth || 600), left = width < 460 ? 44 : 60, right = width - 8;
  const top = zones ? 24 : 6, each = 54, bottom = top + each * rows.length, height = bottom + 22;
  const x = e => left + (right - left) * (e - from) / (to + 1 - from);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  const parts = [];
  if (zones) {
    const edges = [from, zones.lost, zones.normal, zones.infinite, to + 1];
    ZONES.forEach(([kind, label], i) => {
      const a = x(edges[i]), b = x(edges[i + 1]);
      parts.push(element('rect', {x: a, y: top, width: b - a, height: bottom - top, class: `zone ${kind}`}));
      parts.push(words((a + b) / 2, top - 8, label, {class: `zone-name ${kind}`, 'text-anchor': 'middle',
        ...(b - a < 7 * label.length ? {textLength: b - a - 4, lengthAdjust: 'spacingAndGlyphs'} : {})}));
    });
  }
  rows.forEach(({label, ledger}, row) => {
    const base = top + each * (row + 1), counts = new Map();
    for (const {exponent, count} of ledger.bins) {
      const e = Math.min(to, Math.max(from, exponent + shift));
      counts.set(e, (counts.get(e) || 0) + count);
    }
    const most = Math.max(1, ...counts.values());
    for (const [e, count] of counts) {
      const h = Math.max(1, (each - 10) * count / most);
      const kind = !zones ? 'plain' : e < zones.lost ? 'lost' : e < zones.normal ? 'subnormal' : e < zones.infinite ? 'normal' : 'infinite';
      parts.push(element('rect', {x: x(e) + 0.5, y: base - h, width: Math.max(1, x(e + 1) - x(e) - 1), height: h, class: `bar ${kind}`}));
    }
    parts.push(element('line', {x1: left, x2: right, y1: base, y2: base, class: 'axis'}));
    parts.push(words(left - 8, base - each / 2 + 10, label, {'text-anchor': 'end'}));
  });
  const apart = width < 460 ? 16 : 8;
  for (let e = Math.ceil(from / apart) * apart; e <= to; e += apart)
    parts.push(words(x(e), bottom + 15, power(e), {class: 'tick', 'text-anchor': 'middle'}));
  svg.replaceChildren(...parts);
  svg.onpointerdown = !drag ? null : event => {
    const start = event.clientX, unit = svg.clientWidth / width * (right - left) / (to + 1 - from);
    svg.setPointerCapture(event.pointerId);
    svg.onpointermove = move => drag(shift + Math.round((move.clientX - start) / unit));
    svg.onpointerup = svg.onpointercancel = () => { svg.onpointermove = null; };
  };
}

// --- Lines

/** `series`: [{points: [[x, y], …], name, class}]; y that are not finite break the line. `y`: {from,
    to, log, ticks: [[value, text], …]}. `marks`: [[x, y], …] of class "mark". `line`: an x to point at. */
function lineChart(svg, {series, x, y, marks = [], line = null, height = 130}) {
  const width = Math.max(300, svg.clientWidth || 600), left = 48, right = width - 10, top = 10, bottom = height - 20;
  const f = y.log ? Math.log10 : v => v;
  const X = v => left + (right - left) * (v - x.from) / Math.max(1e-9, x.to - x.from);
  const Y = v => bottom - (bottom - top) * Math.min(1, Math.max(0, (f(v) - f(y.from)) / Math.max(1e-9, f(y.to) - f(y.from))));
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  const parts = [];
  for (const [value, text] of y.ticks) {
    parts.push(element('line', {x1: left, x2: right, y1: Y(value), y2: Y(value), class: 'grid'}));
    parts.push(words(left - 6, Y(value) + 4, text, {class: 'tick', 'text-anchor': 'end'}));
  }
  x.ticks.forEach(([value, text], i) => parts.push(words(X(value), height - 5, text, {class: 'tick',
    'text-anchor': i === 0 ? 'start' : i + 1 === x.ticks.length ? 'end' : 'middle'})));
  if (line !== null && line >= x.from && line <= x.to)
    parts.push(element('line', {x1: X(line), x2: X(line), y1: top, y2: bottom, class: 'here'}));
  for (const {points, class: kind} of series) {
    let d = '', pen = false;
    for (const [px, py] of thinned(points, right - left)) {
      const ok = Number.isFinite(py) && (!y.log || py > 0);
      if (ok) d += `${pen ? 'L' : 'M'}${X(px).toFixed(1)} ${Y(py).toFixed(1)}`;
      pen = ok;
    }
    parts.push(element('path', {d, class: `line ${kind}`}));
  }
  let last = -Infinity;  // marks that are closer than three pixels would merge
  for (const [px, py] of marks) {
    if (X(px) - last < 3) continue;
    last = X(px);
    parts.push(element('path', {d: `M${last - 4} ${Y(py) - 4}l8 8m0 -8l-8 8`, class: 'mark'}));
  }
  svg.replaceChildren(...parts);
}

/** At most about two points for each pixel. */
function thinned(points, pixels) {
  const by = Math.ceil(points.length / (2 * pixels));
  return by < 2 ? points : points.filter((_, i) => i % by === 0 || i + 1 === points.length);
}

/** A few whole numbers from 0 to n. */
function stepTicks(n) {
  const unit = 10 ** Math.floor(Math.log10(Math.max(1, n / 4)));
  const by = unit * [1, 2, 5, 10].find(k => unit * k * 5 >= n);
  const all = [];
  for (let v = 0; v <= n; v += by) all.push([v, String(v)]);
  return all;
}

/** Rows of text as a table with a caption. */
function fillTable(table, caption, head, rows) {
  const row = (cells, tag) => {
    const tr = document.createElement('tr');
    cells.forEach((cell, i) => {
      const td = document.createElement(i ? tag : 'th');
      td.scope = tag === 'th' ? 'col' : 'row';
      td.textContent = cell;
      tr.append(td);
    });
    return tr;
  };
  const title = document.createElement('caption');
  title.textContent = caption;
  const thead = document.createElement('thead'), tbody = document.createElement('tbody');
  thead.append(row(head, 'th'));
  tbody.append(...rows.map(r => row(r, 'td')));
  table.replaceChildren(title, thead, tbody);
}
