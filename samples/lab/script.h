// The page's script: it draws what the page has as data, and loads nothing.
#pragma once
#include <string_view>

namespace lab {

inline constexpr std::string_view kScript = R"js(
'use strict';
(() => {
  const by = id => document.getElementById(id);
  const data = JSON.parse(by('ledger').textContent);
  const [vanishes, least, infinite] = data.borders;
  const [moment, module, scale] = ['moment', 'module', 'scale'].map(by);
  const top = 50, bottom = 206, left = 6, wide = 628 / (data.high - data.low);

  // Counts of the numbers at 2^from, 2^(from + 1), …
  const read = (from, text) => ({from, counts: text ? text.split(' ').map(n => parseInt(n, 36)) : []});
  const zone = e => e < vanishes ? 0 : e < least ? 1 : e < infinite ? 2 : 3;
  const percent = share => {
    const p = 100 * share;
    return p === 0 ? '0' : p < 0.005 ? '<0.01' : p > 99.9 && p < 100 ? '>99.9' : p.toFixed(p < 1 ? 2 : p < 99.95 ? 1 : 0);
  };

  function shares([, , from, text, first, powers], shift) {
    const all = read(from, text), exact = read(first, powers), sums = [0, 0, 0, 0];
    all.counts.forEach((n, i) => sums[zone(all.from + i + shift)] += n);
    const tie = exact.counts[vanishes - shift - exact.from] || 0;  // 2^-25 itself rounds to zero, to even
    sums[0] += tie;
    sums[1] -= tie;
    const total = sums.reduce((a, b) => a + b, 0) || 1;
    return sums.map(n => n / total);
  }

  function bars([, , from, text], shift) {
    const all = read(from, text), heights = new Map(), paths = ['', '', '', ''];
    all.counts.forEach((n, i) => {
      const e = Math.min(data.high - 1, Math.max(data.low, all.from + i + shift));
      heights.set(e, (heights.get(e) || 0) + n);
    });
    const most = Math.max(1, ...heights.values());
    for (const [e, n] of heights) {
      const x = (left + (e - data.low) * wide + 0.6).toFixed(1), h = (n / most * (bottom - top)).toFixed(1);
      paths[zone(e)] += `M${x} ${bottom}v-${h}h${(wide - 1.2).toFixed(1)}V${bottom}`;
    }
    paths.forEach((d, i) => by('bars' + i).setAttribute('d', d));
  }

  function show() {
    const at = data.moments[moment.value], shift = +scale.value, chosen = at.modules[module.value];
    const minus = n => String(n).replace('-', '−');
    by('scale_text').innerHTML = shift ? `2<sup>${minus(shift)}</sup>` : '1';
    scale.setAttribute('aria-valuetext', `2 to the power of ${shift}`);
    const names = ['become zero', 'are subnormal', 'are normal', 'are infinite'];
    const parts = chosen ? shares(chosen, shift) : [0, 0, 0, 0];
    bars(chosen || [0, 0, 0, '', 0, ''], shift);
    parts.forEach((p, i) => { const text = by('share' + i); if (text) text.textContent = percent(p) + ' %'; });
    const said = `${data.names[module.value]}, ${at.text}, S = 2^${minus(shift)}: ` +
      parts.map((p, i) => `${percent(p)} % ${names[i]}`).join(', ');
    by('bars0').closest('svg').setAttribute('aria-label', said);
    by('summary').textContent = said + '.';
    by('losses').replaceChildren(...at.modules.flatMap((m, i) => {
      if (!m) return [];
      const row = document.createElement('tr'), head = document.createElement('th');
      head.scope = 'row';
      head.textContent = data.names[i];
      row.append(head);
      shares(m, shift).forEach((p, z) => {
        const cell = row.insertCell();
        cell.textContent = percent(p);
        if (z !== 2) cell.className = 'c' + Math.round(9 * Math.sqrt(z === 1 ? p / 4 : p));
      });
      for (const n of [m[0], m[1]]) row.insertCell().textContent = n;
      return [row];
    }));
  }

  const fill = (select, names) => names.forEach((name, i) => select.add(new Option(name, i)));
  fill(moment, data.moments.map(m => m.text));
  fill(module, data.names);
  moment.value = data.moments.length - 1;
  const back = () => { scale.value = data.moments[moment.value].scale; show(); };
  moment.addEventListener('change', back);
  module.addEventListener('change', show);
  scale.addEventListener('input', show);
  by('panel').hidden = false;
  back();
})();
)js";

}  // namespace lab
