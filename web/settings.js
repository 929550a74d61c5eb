// The settings, in the form and in the address.
'use strict';

const $ = id => document.getElementById(id);
const form = $('settings'), field = name => form.elements[name];
const DEFAULTS = {data: 'digits', widths: '64, 64', precision: 'scaled', weight: '1e-5', law: 'dynamic', scale: '16',
                  interval: '20', lr: '1e-3', seed: '0', steps: '660', target: ''};
const PRECISIONS = ['float32', 'fp16', 'scaled', 'bf16'];

function values() {
  return Object.fromEntries(Object.keys(DEFAULTS).map(name => [name, field(name).value.trim()]));
}
const isNumber = input => ['number', 'range'].includes(input.type);
/** What the address asks for and its field cannot show: [name, text]. */
let misread = null;
function setValues(wanted) {
  misread = null;
  for (const [name, value] of Object.entries(wanted)) {
    const input = field(name), before = input.value;
    if (isNumber(input) && Number.isNaN(Number(value))) continue;  // the browser would warn in the console
    input.value = value;
    // A select without that option, or a range beyond its bounds, keeps a value of its own.
    if (input.value === '' && value !== '') input.value = before;
  }
  showSettings();
}
function showSettings() {
  $('scale-out').textContent = power(field('scale').value);
  $('scaler').disabled = field('precision').value !== 'scaled';
  field('interval').disabled = field('law').value === 'fixed';
  const spirals = field('data').value === 'spirals';
  $('draw-card').hidden = spirals;
  $('map-card').hidden = !spirals;
}
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1)), known = {...DEFAULTS};
  for (const name of Object.keys(DEFAULTS)) if (given.has(name)) known[name] = given.get(name);
  setValues(known);
  misread = Object.entries(known).find(([name, text]) => !shows(field(name), text.trim())) || null;
}
function shows(input, text) {
  const shown = input.value.trim();
  return shown === text || (text !== '' && isNumber(input) && Number(shown) === Number(text));
}
/** The settings that are not the first ones. */
const addressText = () => new URLSearchParams(Object.entries(values()).filter(([name, value]) => value !== DEFAULTS[name])).toString();
function writeAddress() {
  const hash = `#${addressText()}`;
  if (hash !== (location.hash || '#')) location.replace(hash);
}
const widthsOf = text => text.split(/[\s,]+/).filter(Boolean).map(Number);

/** The first field that the browser does not accept, and why: "Seed: …". Null if it accepts all. */
function wrongField() {
  const label = input => input.labels[0].firstChild.textContent.trim();
  if (misread) return `${label(field(misread[0]))}: the address asks for "${misread[1]}".`;
  const input = [...form.elements].find(e => e.willValidate && !e.validity.valid);
  return input ? `${label(input)}: ${input.validationMessage}` : null;
}
/** The settings in the order of exports.cpp. A field that is switched off has its first value: the browser does not check it. */
function numbersOf(settings) {
  const v = Object.fromEntries(Object.entries(settings).map(([name, value]) => [name, field(name).matches(':disabled') ? DEFAULTS[name] : value]));
  const widths = widthsOf(v.widths);
  return [v.data === 'spirals' ? 1 : 0, PRECISIONS.indexOf(v.precision), Number(v.weight), v.law === 'fixed' ? 1 : 0,
          2 ** Number(v.scale), Number(v.interval), Number(v.lr), Number(v.seed), 128, widths.length, ...widths];
}
