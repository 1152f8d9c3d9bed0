// Uploads, recordings, tables and periods: what needs no browser.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';

import { Problem, Unreachable } from '../../console/api.js';
import { csv } from '../../console/upload/csv.js';
import { rangeOf, series } from '../../console/upload/series.js';
import { Sha256, sha256 } from '../../console/upload/sha256.js';
import { missingParts, PART_BYTES, partCount, Speed, transfer } from '../../console/upload/transfer.js';
import { wav } from '../../console/upload/wav.js';

/** A server that stores parts, and what it was asked. */
function server(size, { stored = [], fail = () => undefined } = {}) {
  const count = partCount(size);
  const has = new Set(stored);
  const log = { put: [], most: 0, waits: [], finished: 0, progress: [] };
  let flying = 0;
  const missing = () => Array.from({ length: count }, (_, index) => index + 1).filter((number) => !has.has(number));
  const ports = {
    async put(number, part, sent, signal) {
      flying += 1;
      log.most = Math.max(log.most, flying);
      await new Promise((resolve) => setImmediate(resolve));
      flying -= 1;
      signal.throwIfAborted();
      const error = fail(number, log);
      log.put.push(number);
      if (error) throw error;
      assert.equal(part.size, Math.min(PART_BYTES, size - (number - 1) * PART_BYTES));
      sent(part.size);
      has.add(number);
    },
    async finish() {
      log.finished += 1;
      if (missing().length > 0) throw new Problem(409, { type: '/problems/parts_missing', missing_parts: missing() }, undefined, undefined);
    },
    async wait(ms) { log.waits.push(ms); },
    now: () => 0,
    report: (progress) => log.progress.push(progress),
  };
  return { ports, log };
}
const file = (size) => ({ size, slice: (from, to) => ({ size: Math.min(to, size) - from }) });
const forever = () => new AbortController().signal;

test('SHA-256 is that of the standard, whatever the lengths', async () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1_000, 100_003]) {
    const bytes = Uint8Array.from({ length }, (_, index) => (index * 31) & 255);
    const expected = createHash('sha256').update(bytes).digest('hex');
    const hash = new Sha256();
    for (let at = 0; at < length; at += 37) hash.update(bytes.subarray(at, Math.min(length, at + 37)));
    assert.equal(hash.hex(), expected, `${length} bytes`);
    assert.equal(await sha256(new Blob([bytes])), expected);
  }
});

test('parts are sent three at a time, and then the upload is finished', async () => {
  const size = PART_BYTES * 6 + 5;
  const { ports, log } = server(size);
  await transfer(file(size), false, ports, forever());
  assert.deepEqual(log.put.toSorted((a, b) => a - b), [1, 2, 3, 4, 5, 6, 7]);
  assert.equal(log.most, 3);
  assert.equal(log.finished, 1);
  assert.deepEqual({ ...log.progress.at(-1), left_ms: 0 }, { sent: size, total: size, parts: 7, done: 7, left_ms: 0, waiting: false });
  assert.ok(log.progress.every((each, index) => each.sent >= (log.progress[index - 1]?.sent ?? 0)));
});

test('a resumed upload sends only what the server misses', async () => {
  const size = PART_BYTES * 4;
  const { ports, log } = server(size, { stored: [1, 3] });
  await transfer(file(size), true, ports, forever());
  assert.deepEqual(log.put.toSorted(), [2, 4]);
  assert.equal(log.progress[0].sent, PART_BYTES * 2);
  const whole = server(size, { stored: [1, 2, 3, 4] });
  await transfer(file(size), true, whole.ports, forever());
  assert.deepEqual(whole.log.put, []);
});

test('a part that fails for a while is sent again, and honours Retry-After', async () => {
  const problems = [new Unreachable('cut'), new Problem(429, { type: '/problems/overloaded' }, 7_000, undefined), new Problem(503, {}, undefined, undefined)];
  const { ports, log } = server(PART_BYTES, { fail: () => problems.shift() });
  await transfer(file(PART_BYTES), false, ports, forever());
  assert.deepEqual(log.put, [1, 1, 1, 1]);
  assert.deepEqual(log.waits, [1_000, 7_000, 4_000]);
  assert.ok(log.progress.some((each) => each.waiting));
  assert.equal(log.progress.at(-1).waiting, false);
});

test('a refusal ends the upload, and so does the person', async () => {
  const refused = server(PART_BYTES * 9, { fail: (number) => (number === 2 ? new Problem(409, { type: '/problems/skills_book_over' }, undefined, undefined) : undefined) });
  await assert.rejects(transfer(file(PART_BYTES * 9), false, refused.ports, forever()), (error) => error.kind === 'skills_book_over');
  assert.ok(refused.log.put.length <= 5);
  const stop = new AbortController();
  const stopped = server(PART_BYTES * 9, { fail: (number) => { if (number === 3) stop.abort(); } });
  await assert.rejects(transfer(file(PART_BYTES * 9), false, stopped.ports, stop.signal));
  assert.equal(stopped.log.finished, 0);
});

test('only the problem of missing parts names parts', () => {
  assert.deepEqual(missingParts(new Problem(409, { type: '/problems/size_mismatch', missing_parts: [1] }, undefined, undefined)), []);
  assert.deepEqual(missingParts(new Unreachable('x')), []);
});

test('the time that is left follows the last seconds', () => {
  const speed = new Speed();
  assert.equal(speed.left(0, 0, 1_000), undefined);
  assert.equal(speed.left(1_000, 100, 1_000), 9_000);
  speed.left(20_000, 100, 1_000);
  assert.equal(speed.left(21_000, 200, 1_000), 8_000);
});

test('CSV keeps texts whole, and executes nothing', () => {
  assert.equal(csv(['a', 'b'], [['x,"y"', -1], ['=1+1', null], ['two\nlines', 'plain']]), 'a,b\r\n"x,""y""",-1\r\n\'=1+1,\r\n"two\nlines",plain\r\n');
});

test('a recording is a WAV file', async () => {
  const view = new DataView(await wav(Float32Array.of(0, 1, -2), 24_000).arrayBuffer());
  assert.equal(view.byteLength, 50);
  assert.equal(view.getUint32(24, true), 24_000);
  assert.equal(view.getUint32(40, true), 6);
  assert.deepEqual([0, 1, 2].map((index) => view.getInt16(44 + index * 2, true)), [0, 32_767, -32_767]);
});

test('a range has every period, also those without use', () => {
  const span = rangeOf('week').span(Date.parse('2026-11-28T10:20:00Z'));
  assert.deepEqual(span, { from: '2026-11-22T00:00:00.000Z', to: '2026-11-29T00:00:00.000Z' });
  const points = series({ ...span, granularity: 'day', periods: [{ start: '2026-11-23T00:00:00Z' }] });
  assert.deepEqual(points.map((point) => Boolean(point.period)), [false, true, false, false, false, false, false]);
  assert.equal(series({ ...rangeOf('today').span(Date.parse('2026-11-28T10:20:00Z')), granularity: 'hour', periods: [] }).length, 24);
  assert.equal(rangeOf('nonsense').id, 'month');
});
