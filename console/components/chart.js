/** Bars over time, as SVG. Every chart stands beside a table with the same numbers. */
import { number } from '../i18n.js';
import { h, useLayoutEffect, useRef, useState } from '../preact.js';

/** Before it is measured. */
const FIRST_WIDTH = 720;
const LEFT = 48;
const BOTTOM = 24;

/**
 * @param {{bars: {label: string, parts: {value: number, tone: 'good' | 'bad' | 'more'}[]}[], label: string, height?: number, least?: number, format?: (value: number) => string}} props
 * `least` is the least height of the axis; `format` writes its numbers
 */
export function Bars({ bars, label, height = 160, least = 2, format = (value) => number(value, value >= 10_000 ? { notation: 'compact' } : { maximumSignificantDigits: 6 }) }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [total, setTotal] = useState(FIRST_WIDTH);
  useLayoutEffect(() => {
    const observer = new ResizeObserver(() => setTotal(box.current?.clientWidth || FIRST_WIDTH));
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  const top = nice(Math.max(least, ...bars.map((bar) => sum(bar))));
  const inner = height - BOTTOM - 8;
  const step = (total - LEFT) / Math.max(1, bars.length);
  const width = Math.max(2, Math.min(28, step * 0.68));
  const every = Math.ceil(bars.length / Math.max(2, Math.floor(total / 96)));
  const y = (/** @type {number} */ value) => 8 + inner * (1 - value / top);
  return h('div', { ref: box, class: 'chart-frame' }, h('svg', { class: 'chart', width: total, height, viewBox: `0 0 ${total} ${height}`, role: 'img', 'aria-label': label },
    [0, 0.5, 1].map((share) => h('g', { key: share },
      h('line', { class: 'grid', x1: LEFT, x2: total, y1: y(top * share), y2: y(top * share) }),
      h('text', { x: LEFT - 8, y: y(top * share) + 4, 'text-anchor': 'end' }, format(top * share)))),
    bars.map((bar, index) => {
      const x = LEFT + step * index + (step - width) / 2;
      let below = 0;
      return h('g', { key: bar.label + index },
        h('title', null, `${bar.label}: ${format(sum(bar))}`),
        bar.parts.filter((part) => part.value > 0).map((part) => {
          const from = y(below);
          below += part.value;
          return h('rect', { class: `bar-${part.tone}`, x, width, y: y(below), height: Math.max(1, from - y(below)), rx: Math.min(3, width / 4) });
        }),
        index % every === 0 && h('text', { x: x + width / 2, y: height - 4, 'text-anchor': 'middle' }, bar.label));
    })));
}

/** @param {{parts: {value: number}[]}} bar */
const sum = (bar) => bar.parts.reduce((all, part) => all + part.value, 0);

/** The next number that reads well. @param {number} value */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 4, 6, 8].find((factor) => factor * power >= value) ?? 10) * power;
}
