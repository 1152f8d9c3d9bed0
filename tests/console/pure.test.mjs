// The parts of the console that need no browser: events, polling, addresses, texts, snippets.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { Problem, get, retryAfter, session, signInAgain, signedIn, url } from '../../console/api.js';
import { titleOf } from '../../console/components/basic.js';
import { after } from '../../console/components/call.js';
import { CLIENTS, configuration } from '../../console/components/clients.js';
import { devicesOf, prefixesOf } from '../../console/components/device_npcs.js';
import { next } from '../../console/components/group_call.js';
import { callSnippets, python, shell } from '../../console/components/snippets.js';
import { link, parts, plain, shownAs } from '../../console/form/safe.js';
import { fill } from '../../console/i18n.js';
import { EVENT_INTERVAL_MS, Live, POLL_INTERVAL_MS, REFUSED_BACKOFF_MS, topics } from '../../console/live.js';
import { match } from '../../console/router.js';
import { offered } from '../../console/screens/group.js';
import { p95 } from '../../console/screens/overview.js';
import { parser } from '../../console/sse.js';
import { en } from '../../console/text/en.js';
import { zh } from '../../console/text/zh.js';

test('events are the same however the text is cut', () => {
  const text = ': hello\r\nid: 1\r\nevent: call.finished\ndata: {"a":\ndata: 1}\n\n\rdata: x\r\rid\ndata\n\nevent: none\n\n';
  const all = (pieces) => {
    const events = [];
    const events_of = parser((event) => events.push(event));
    for (const piece of pieces) events_of.push(piece);
    return events;
  };
  const whole = all([text]);
  assert.deepEqual(whole, [
    { type: 'call.finished', data: '{"a":\n1}', id: '1' }, { type: 'message', data: 'x', id: '1' }, { type: 'message', data: '', id: '' },
  ]);
  assert.deepEqual(all([...text]), whole);
  for (let at = 1; at < text.length; at += 1) assert.deepEqual(all([text.slice(0, at), text.slice(at)]), whole, `${at}`);
});

test('an id without data moves the position', () => {
  const moves = [];
  const events = [];
  parser((event) => events.push(event), (id) => moves.push(id)).push('id: 1\ndata: x\n\nid: 2\n\n: comment\n\n\nevent: y\n\n');
  assert.deepEqual([events, moves], [[{ type: 'message', data: 'x', id: '1' }], ['2']]);
});

test('an endless line or event is refused', () => {
  assert.throws(() => parser(() => {}).push('data: ' + 'x'.repeat(5 * 1024 * 1024)));
  assert.throws(() => {
    const events = parser(() => {});
    for (let line = 0; line < 6; line += 1) events.push(`data: ${'x'.repeat(1024 * 1024)}\n`);
  });
});

test('what is shown is read every few seconds, except in a pause and after the end', (context) => {
  context.mock.timers.enable({ apis: ['setInterval'] });
  const live = new Live();
  let reads = 0;
  const leave = live.subscribe(() => { reads += 1; });
  live.start();
  live.start();
  context.mock.timers.tick(2 * POLL_INTERVAL_MS);
  assert.equal(reads, 2);
  live.pause(true);
  context.mock.timers.tick(3 * POLL_INTERVAL_MS);
  assert.equal(reads, 2);
  live.pause(false);
  assert.equal(reads, 3);
  live.stop();
  context.mock.timers.tick(POLL_INTERVAL_MS);
  assert.equal(reads, 3);
  live.start();
  leave();
  context.mock.timers.tick(POLL_INTERVAL_MS);
  assert.equal(reads, 3);
  live.stop();
});

test('events of a call change what is shown of it', () => {
  let run = { state: 'running', request: { service: 'wave', params: {}, mode: 'sync' }, log: [] };
  for (const [type, data] of [['progress', { progress: 1, total: 3 }], ['log', { level: 'info', data: 'up' }], ['other', {}]]) run = after(run, { type, data: JSON.stringify(data), id: undefined });
  assert.deepEqual(run.progress, { progress: 1, total: 3 });
  assert.deepEqual(run.log, [{ level: 'info', data: 'up' }]);
  const ended = after(run, { type: 'result', data: '{"outcome":"succeeded","result":{}}', id: undefined });
  assert.equal(ended.state, 'ended');
  const failed = after(run, { type: 'result', data: '{"type":"/problems/offline","status":503,"outcome":"offline"}', id: undefined });
  assert.equal(failed.error.kind, 'offline');
  assert.equal(after(run, { type: 'result', data: '{', id: undefined }), run);
});

test('paths are matched part by part', () => {
  assert.deepEqual(match('/devices/:id', '/devices/a%2Fb'), { id: 'a/b' });
  for (const path of ['/devices', '/devices/', '/devices/a/b', '/devices/%E0%A4%A']) assert.equal(match('/devices/:id', path), undefined, path);
});

test('queries leave out what is empty', () => {
  assert.equal(url('/v1/devices', { prefix: 'a&b', online: false, limit: 0, service: '', cursor: undefined }), '/v1/devices?prefix=a%26b&online=false&limit=0');
});

test('Retry-After is seconds or a date', () => {
  assert.equal(retryAfter('3'), 3_000);
  assert.equal(retryAfter('Sat, 28 Nov 2026 00:00:10 GMT', Date.parse('2026-11-28T00:00:00Z')), 10_000);
  for (const header of [null, '', 'soon']) assert.equal(retryAfter(header), undefined);
});

test('invisible characters are marked', () => {
  assert.equal(plain('a\u202Eb\u200Fc\u0000\u{E0041}\ud800'), 'a⟨U+202E⟩b⟨U+200F⟩c⟨U+0000⟩⟨U+E0041⟩⟨U+D800⟩');
  assert.deepEqual(parts('ab\n\tc 中文 👩‍👧'), [{ text: 'ab\n\tc 中文 👩‍👧', mark: false }]);
});

test('only harmless types are shown, and only https is a link', () => {
  for (const [type, expected] of [['image/png', 'image'], ['IMAGE/JPEG; q=1', 'image'], ['audio/wav', 'audio'], ['image/svg+xml', undefined], ['text/html', undefined], [undefined, undefined]]) assert.equal(shownAs(type), expected, type);
  for (const uri of ['javascript:alert(1)', 'data:text/html,x', '//a', 'https://user:word@host/', undefined]) assert.equal(link(uri), undefined, uri);
  assert.equal(link('https://host/a'), 'https://host/a');
});

test('snippets survive hostile values', () => {
  assert.equal(shell("it's"), `'it'\\''s'`);
  assert.equal(python({ a: [true, null, 'x"'], b: {} }), '{\n    "a": [\n        True,\n        None,\n        "x\\"",\n    ],\n    "b": {},\n}');
  const snippets = callSnippets({ origin: 'https://host', device: 'a:b', body: { service: "x';rm -rf /", params: {} } });
  assert.ok(snippets.every((snippet) => snippet.text.length > 0));
  assert.match(snippets[0].text, /'\{"service":"x'\\'';rm -rf \/"/);
});

test('every client has a configuration for each transport', () => {
  for (const client of CLIENTS) {
    for (const transport of client.transports) {
      const text = configuration(client.id, { origin: 'https://host', endpoint: '/mcp/devices/toy-1', scope: 'device', subject: 'toy-1', key: 'sb_secret', stdio: transport === 'stdio' });
      assert.match(text, /sb_secret/, client.id);
      assert.match(text, transport === 'stdio' ? /--device/ : /https:\/\/host\/mcp\/devices\/toy-1/, client.id);
    }
  }
});

test('both languages have the same texts with the same values', () => {
  assert.deepEqual(Object.keys(zh).sort(), Object.keys(en).sort());
  const values = (entry) => [...new Set((typeof entry === 'string' ? entry : entry.other).match(/\{\w+\}/g) ?? [])].sort();
  for (const key of Object.keys(en)) assert.deepEqual(values(zh[key]), values(en[key]), key);
});

test('every reason of the end of a connection has a text', () => {
  const source = readFileSync(new URL('../../crates/bus/src/events/device_event.rs', import.meta.url), 'utf8');
  const reasons = [...source.match(/label!\(DisconnectReason \{([^}]*)\}/)[1].matchAll(/"(\w+)"/g)].map(([, name]) => name);
  assert.equal(reasons.length, 11);
  assert.deepEqual(Object.keys(en).filter((key) => key.startsWith('reason.')).sort(), reasons.map((name) => `reason.${name}`).sort());
});

test('every kind of problem has a title', () => {
  const list = readFileSync(new URL('../compatibility/problems.txt', import.meta.url), 'utf8');
  const kinds = [...new Set(list.trim().split('\n').map((line) => line.split(' ')[0]))];
  assert.deepEqual(kinds.filter((kind) => !titleOf(kind)), []);
  const known = new Set([...kinds.map((kind) => kind.replace(/^token_.*/, 'token')), 'other', 'trace', 'unreachable', 'unreachable.text']);
  assert.deepEqual(Object.keys(en).filter((key) => key.startsWith('problem.') && !known.has(key.slice('problem.'.length))), []);
});

test('plurals follow the language', () => {
  const entry = { one: '{n} call', other: '{n} calls' };
  assert.deepEqual([1, 2, 1234].map((n) => fill(entry, 'en', { n })), ['1 call', '2 calls', '1,234 calls']);
  assert.equal(fill('{unknown} stays', 'en', {}), '{unknown} stays');
});

test('an event is about a kind of thing, and about things', () => {
  const cases = [
    ['device.online', { device_id: 'toy-1' }, ['device.online', 'device', 'device:toy-1']],
    ['call.ended', { device_id: 'toy-1', call_id: 'call_1' }, ['call.ended', 'call', 'call:toy-1', 'call:call_1']],
    ['book.changed', { id: 'book_1', state: 'ready' }, ['book.changed', 'book', 'book:book_1']],
    ['setting.changed', { kind: 'npc', id: 'npc_1' }, ['setting.changed', 'npc', 'npc:npc_1']],
  ];
  for (const [type, data, expected] of cases) assert.deepEqual(topics({ type, data }), expected, type);
});

/** What runs once the promises that are settled have been followed. */
const settled = () => new Promise((resume) => setImmediate(resume));

/** A source of events that a test acts for. @param {any[]} streams */
const source = (streams) => (last, on, stop) => new Promise((resolve, reject) => {
  streams.push({ last, emit: on.event, open: on.open, move: on.move, end: resolve, fail: reject, stop });
  stop.addEventListener('abort', () => reject(stop.reason));
});

test('a stream takes the place of polling where events are about what is shown', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval', 'setTimeout', 'Date'] });
  const streams = [];
  const live = new Live(source(streams));
  const reads = { toy: 0, all: 0, polled: 0 };
  live.subscribe(() => { reads.toy += 1; }, ['device:toy-1']);
  live.subscribe(() => { reads.all += 1; }, ['device']);
  live.subscribe(() => { reads.polled += 1; });
  live.start();
  context.mock.timers.tick(POLL_INTERVAL_MS);
  assert.deepEqual(reads, { toy: 1, all: 1, polled: 1 });
  streams[0].open();
  assert.equal(live.state.value, 'live');
  assert.deepEqual(reads, { toy: 2, all: 2, polled: 2 }, 'what changed before the stream was open');
  context.mock.timers.tick(POLL_INTERVAL_MS);
  assert.deepEqual(reads, { toy: 2, all: 2, polled: 3 });
  for (let event = 0; event < 50; event += 1) streams[0].emit({ type: 'device.online', id: `${event}`, data: { device_id: event === 0 ? 'toy-1' : 'toy-2' } });
  context.mock.timers.tick(0);
  assert.deepEqual(reads, { toy: 3, all: 3, polled: 3 });
  streams[0].emit({ type: 'device.offline', id: '50', data: { device_id: 'toy-2' } });
  context.mock.timers.tick(EVENT_INTERVAL_MS / 2);
  assert.equal(reads.all, 3, 'once a second at most');
  context.mock.timers.tick(EVENT_INTERVAL_MS / 2);
  assert.equal(reads.all, 4);
  streams[0].emit({ type: 'gap', id: '51', data: {} });
  assert.deepEqual(reads, { toy: 4, all: 5, polled: 4 });

  streams[0].end();
  await settled();
  assert.equal(live.state.value, 'reconnecting');
  context.mock.timers.tick(POLL_INTERVAL_MS);
  await settled();
  assert.deepEqual(reads, { toy: 5, all: 6, polled: 5 });
  assert.equal(streams[1].last, '51');
  streams[1].open();
  assert.deepEqual(reads, { toy: 5, all: 6, polled: 5 }, 'the stream continues where it ended');
  streams[1].move('52');
  live.pause(true);
  assert.equal(streams[1].stop.aborted, true);
  live.pause(false);
  assert.equal(streams[2].last, '52');
  streams[2].fail(new Problem(404, {}, undefined, undefined));
  await settled();
  assert.equal(live.state.value, 'polling');
  context.mock.timers.tick(REFUSED_BACKOFF_MS - 1);
  await settled();
  assert.equal(streams.length, 3);
  context.mock.timers.tick(1);
  await settled();
  assert.equal(streams.length, 4, 'a refused stream is asked for again');
  live.stop();
});

test('a stream that opens and ends at once is asked for ever more rarely', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval', 'setTimeout', 'Date'] });
  context.mock.method(Math, 'random', () => 1);
  const streams = [];
  const live = new Live(source(streams));
  live.start();
  /** The milliseconds until the next stream after the last one has ended. */
  const wait = async (act) => {
    streams.at(-1).open();
    act?.(streams.at(-1));
    const count = streams.length;
    streams.at(-1).end();
    await settled();
    for (let seconds = 1; ; seconds += 1) {
      context.mock.timers.tick(1_000);
      await settled();
      if (streams.length > count) return seconds;
    }
  };
  const waits = [];
  for (let times = 0; times < 4; times += 1) waits.push(await wait((stream) => stream.emit({ type: 'ready', id: '1', data: {} })));
  assert.deepEqual(waits, [1, 2, 4, 8]);
  assert.equal(await wait((stream) => stream.emit({ type: 'device.online', id: '2', data: { device_id: 'toy-1' } })), 1);
  assert.equal(await wait(() => context.mock.timers.tick(10_000)), 1);
  live.stop();
});

test('a session of some devices polls what is about no device', async (context) => {
  context.mock.timers.enable({ apis: ['setInterval', 'setTimeout', 'Date'] });
  const streams = [];
  const live = new Live(source(streams));
  const reads = { device: 0, npc: 0, both: 0 };
  for (const [name, of] of Object.entries({ device: ['device:toy-1', 'device.changed', 'call'], npc: ['npc'], both: ['device:toy-1', 'npc'] })) live.subscribe(() => { reads[name] += 1; }, of);
  live.start();
  streams[0].open();
  for (const [restrictions, expected] of [[{}, 0], [{ device_prefix: 'toy-' }, 1], [{ device_label: 'room' }, 1], [{ services: ['wave'] }, 0]]) {
    session.value = { restrictions };
    Object.assign(reads, { device: 0, npc: 0, both: 0 });
    context.mock.timers.tick(POLL_INTERVAL_MS);
    assert.deepEqual(reads, { device: 0, npc: expected, both: expected }, JSON.stringify(restrictions));
  }
  session.value = undefined;
  live.stop();
});

test('the outcomes of a group call come one by one', () => {
  const event = (type, data) => ({ type, data: JSON.stringify(data), id: undefined });
  let run = next({ state: 'running', service: 'echo', items: [] }, event('started', { devices: 2 }));
  run = next(run, event('progress', { device_id: 'a', progress: 1 }));
  run = next(run, event('item', { device_id: 'a', outcome: 'succeeded', delivered: 'yes', elapsed_ms: 1 }));
  run = next(run, { type: 'item', data: 'no JSON', id: undefined });
  assert.deepEqual([run.state, run.devices, run.items.map((item) => item.device_id)], ['running', 2, ['a']]);
  run = next(run, event('ended', { devices: 2, outcomes: { succeeded: 1, offline: 1 } }));
  assert.deepEqual([run.state, run.outcomes], ['ended', { succeeded: 1, offline: 1 }]);
});

test('the 95th percentile is that of enough calls, in whatever order', () => {
  const calls = (count) => Array.from({ length: count }, (_, index) => ({ elapsed_ms: (index * 7) % count + 1 }));
  for (const [count, expected] of [[0, undefined], [19, undefined], [20, 19], [99, 95], [100, 95]]) assert.equal(p95(calls(count)), expected, `${count} calls`);
});

test('a few prefixes cover many ids, those that have most in common together', () => {
  const ids = Array.from({ length: 100 }, (_, index) => `toy-${index}`);
  const groups = prefixesOf([...ids, 'lamp'], 4);
  assert.deepEqual(groups.flatMap((group) => group.ids), [...ids, 'lamp'].sort());
  assert.ok(groups.length === 4 && groups.every(({ prefix, ids }) => ids.every((id) => id.startsWith(prefix))));
  assert.deepEqual(groups[0], { prefix: 'lamp', ids: ['lamp'] });
  assert.deepEqual(prefixesOf(['b', 'a', 'ca', 'cb'], 3), [{ prefix: 'a', ids: ['a'] }, { prefix: 'b', ids: ['b'] }, { prefix: 'c', ids: ['ca', 'cb'] }]);
  assert.deepEqual(prefixesOf(['b', 'a'], 1), [{ prefix: '', ids: ['a', 'b'] }]);
  assert.deepEqual(prefixesOf([]), []);
});

test('the devices of an NPC are read in few requests, however many devices there are', async (context) => {
  const known = Array.from({ length: 10_000 }, (_, index) => `toy-${String(index).padStart(4, '0')}`);
  const linked = [...known.filter((_, index) => index % 100 === 0), 'never'];
  const requests = [];
  context.mock.method(globalThis, 'fetch', async (address) => {
    const { pathname, searchParams } = new URL(address, 'http://127.0.0.1');
    requests.push(pathname);
    if (pathname.startsWith('/v1/npcs/')) return Response.json({ device_ids: linked });
    const [prefix, limit, after] = ['prefix', 'limit', 'cursor'].map((name) => searchParams.get(name) ?? '');
    const page = known.filter((id) => id.startsWith(prefix) && id > after).slice(0, Number(limit));
    return Response.json({ devices: page.map((id) => ({ id })), next_cursor: page.at(-1) === known.findLast((id) => id.startsWith(prefix)) ? null : page.at(-1) ?? null });
  });
  const { items, more } = await devicesOf('npc_1', { prefix: '' }, new AbortController().signal);
  assert.deepEqual([items.map((each) => each.id), more], [linked.slice(0, -1), false]);
  assert.ok(requests.length < 60, `${requests.length} requests`);
  requests.length = 0;
  assert.deepEqual((await devicesOf('npc_1', { prefix: 'toy-42' }, new AbortController().signal)).items, [{ id: 'toy-4200' }]);
  assert.equal(requests.length, 2);
});

test('the service that most devices offer is the first', () => {
  const devices = [{ id: 'a', service_names: ['wave', 'echo'] }, { id: 'b', service_names: ['echo'] }, { id: 'c', service_names: [] }];
  assert.deepEqual(offered(devices), [{ name: 'echo', count: 2, device: 'a' }, { name: 'wave', count: 1, device: 'a' }]);
});

test('requests wait for a session of the same organisation, and never use that of another', async (context) => {
  const organisation = (id) => ({ org_id: id, is_operator: false, scopes: [], restrictions: {}, actor: {} });
  const replaced = [];
  globalThis.location = { replace: (to) => replaced.push(to) };
  let status = 401;
  const fetched = context.mock.method(globalThis, 'fetch', async () => new Response('{}', { status }));
  session.value = organisation('org_a');
  const same = get('/v1/org');
  await settled();
  assert.equal(signInAgain.value, true);
  status = 200;
  signedIn(organisation('org_a'));
  await same;
  assert.equal(fetched.mock.callCount(), 2);
  status = 401;
  get('/v1/org');
  await settled();
  status = 200;
  signedIn(organisation('org_b'));
  await settled();
  assert.deepEqual([fetched.mock.callCount(), replaced, session.value.org_id], [3, ['/console/'], 'org_a']);
  delete globalThis.location;
  session.value = undefined;
  signInAgain.value = false;
});
