/** A text as a QR code, for a camera. */
import { h, useMemo } from '../preact.js';
import { encodeQR } from '../vendor/qr.mjs';

/** Light modules around the code, as ISO/IEC 18004 wants them. */
const QUIET = 4;

/** @param {{text: string, label: string}} props */
export function Qr({ text, label }) {
  const { size, dark } = useMemo(() => {
    const rows = encodeQR(text, 'raw', { ecc: 'low', border: QUIET });
    // One run of dark modules is one bar.
    const bars = rows.flatMap((row, y) => row.flatMap((on, x) => (on && !row[x - 1] ? [`M${x} ${y}h${[...row, false].indexOf(false, x) - x}v1H${x}z`] : [])));
    return { size: rows.length, dark: bars.join('') };
  }, [text]);
  return h('svg', { class: 'qr', viewBox: `0 0 ${size} ${size}`, role: 'img', 'aria-label': label, 'shape-rendering': 'crispEdges' }, h('path', { d: dark }));
}
