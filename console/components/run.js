/** How a call goes: the cord from the page to the device, progress, log, and the end. */
import { Problem } from '../api.js';
import { duration, t } from '../i18n.js';
import { h } from '../preact.js';
import { Button, Delivered, Empty, Failure, Id, Notice, Outcome, Text } from './basic.js';
import { Json } from './code.js';
import { Result } from './result.js';

/** @typedef {import('./call.js').Run} Run */

/** @param {{run: Run | undefined, stop: () => void, again: () => void}} props */
export function RunView({ run, stop, again }) {
  if (!run) return h(Empty, { title: t('service.result.none'), text: t('service.result.none.text') });
  return h('div', { class: 'run', 'aria-live': 'polite', 'aria-busy': run.state === 'running' ? 'true' : undefined },
    run.state === 'running' ? h(Working, { run, stop }) : h(End, { run, again }),
    run.log.length > 0 && h('details', { open: true }, h('summary', { class: 'small soft' }, t('service.log')),
      h('ul', { class: 'log' }, run.log.map((line, index) => h('li', { key: index }, h('span', { class: 'tag' }, line.level), ' ', h(Text, null, typeof line.data === 'string' ? line.data : JSON.stringify(line.data)))))),
    run.result && h(Result, { result: run.result.result, valid: run.result.result_valid }));
}

/** @param {{run: Run, stop: () => void}} props */
function Working({ run, stop }) {
  const { progress } = run;
  return h('div', { class: 'stack tight' },
    h('div', { class: 'row apart' }, h('strong', null, t('service.calling', { service: run.request.service })), h(Button, { small: true, kind: 'danger', icon: 'stop', onClick: stop }, t('service.stop'))),
    h('progress', { 'aria-label': t('service.calling', { service: run.request.service }), max: progress?.total, value: progress?.total ? progress.progress : undefined }),
    progress?.message && h('p', { class: 'small soft' }, h(Text, null, progress.message)));
}

/** @param {{run: Run, again: () => void}} props */
function End({ run, again }) {
  const document = run.error instanceof Problem ? run.error.document : {};
  const outcome = run.result?.outcome ?? document.outcome;
  const delivered = run.result?.delivered ?? document.delivered;
  const elapsed = run.result?.elapsed_ms ?? document.elapsed_ms;
  const call = run.result?.call_id ?? document.call_id;
  return h('div', { class: 'stack tight' },
    outcome && h('div', { class: 'run-head' }, h(Outcome, { outcome }), delivered && h('span', { class: 'tag' }, h(Delivered, { delivered })), elapsed !== undefined && h('span', { class: 'number soft' }, duration(elapsed)), h('span', { class: 'grow' }), call && h(Id, { id: call })),
    run.state === 'stopped' && h(Notice, { tone: 'warn' }, t('service.stopped')),
    run.accepted && h(Notice, { tone: 'good', title: t('service.accepted') }, h('span', null, t('service.accepted.text')), h(Id, { id: run.accepted.call_id, to: `/calls/${run.accepted.call_id}` })),
    run.error && h(Failure, { error: run.error }),
    h('div', null, h(Button, { small: true, icon: 'again', onClick: again }, t('service.again'))),
    run.accepted && h(Json, { value: run.accepted }));
}
