/** A new voice: a sample, uploaded or recorded here, and the consent of its person. */
import { useAct } from '../act.js';
import { request } from '../api.js';
import { t } from '../i18n.js';
import { duration, size } from '../i18n.js';
import { h, useEffect, useRef, useState } from '../preact.js';
import { random } from '../upload/books.js';
import { MAX_RECORDING_MS, record, recordingObstacle } from '../upload/wav.js';
import { Button, Failure, Notice, Text } from './basic.js';
import { Dialog } from './dialog.js';
import { Drop } from './drop.js';
import { Check, Field, TextField } from './field.js';

const MAX_BYTES = 10 * 1024 * 1024;

/** @param {{onClose: () => void, added: () => void}} props */
export function NewVoice({ onClose, added }) {
  const [sample, setSample] = useState(/** @type {Blob | undefined} */ (undefined));
  const [name, setName] = useState('');
  const [languages, setLanguages] = useState('');
  const [provider, setProvider] = useState('');
  const [by, setBy] = useState('');
  const [statement, setStatement] = useState('');
  const [until, setUntil] = useState('');
  const [given, setGiven] = useState(false);
  const key = useRef(random());
  const tooLarge = sample && sample.size > MAX_BYTES;
  const { busy, error, run } = useAct(async () => {
    try {
      await request('POST', '/v1/voices', { body: sample, contentType: 'application/octet-stream', key: key.current, query: {
        name: name.trim(), consent_by: by.trim(), consent_statement: statement.trim(), provider: provider.trim(), languages: languages.split(/[\s,]+/).filter(Boolean).join(','),
        consent_expires_at: until && new Date(`${until}T23:59:59`).toISOString(),
      } });
    } catch (failure) {
      key.current = random();
      throw failure;
    }
    added();
  });
  const complete = sample && !tooLarge && name.trim() && by.trim() && statement.trim() && given;
  return h(Dialog, { title: t('voices.add'), onClose, wide: true },
    h('form', { class: 'stack', onSubmit: run },
      h(Sample, { sample, setSample: (blob, file) => {
        setSample(blob);
        if (file && !name) setName(file.replace(/\.\w+$/, '').slice(0, 100));
      } }),
      tooLarge && h(Notice, { tone: 'warn', role: 'alert' }, t('voices.sample.large', { size: size(sample.size) })),
      h(TextField, { label: t('voices.name'), value: name, onInput: setName, maxLength: 100, autocomplete: 'off', required: true }),
      h(TextField, { label: t('voices.languages'), hint: t('voices.languages.hint'), optional: true, mono: true, value: languages, onInput: setLanguages, placeholder: 'de-DE en' }),
      h('fieldset', { class: 'stack' }, h('legend', { class: 'label' }, t('voices.consent')),
        h('p', { class: 'small soft' }, t('voices.consent.why.text')),
        h(TextField, { label: t('voices.consent.by'), value: by, onInput: setBy, maxLength: 200, autocomplete: 'off', required: true }),
        h(Field, { label: t('voices.consent.statement'), hint: t('voices.consent.statement.hint'), required: true, render: (attributes) => h('textarea', { ...attributes, class: 'textarea', maxLength: 2_000, value: statement, onInput: (/** @type {any} */ event) => setStatement(event.target.value) }) }),
        h(Field, { label: t('voices.consent.end'), hint: t('voices.consent.end.hint'), optional: true, render: (attributes) => h('input', { ...attributes, type: 'date', class: 'input short', value: until, onInput: (/** @type {any} */ event) => setUntil(event.target.value) }) }),
        h(Check, { checked: given, onChange: setGiven }, t('voices.consent.given'))),
      h('details', null, h('summary', { class: 'soft' }, t('voices.more')), h('div', { class: 'stack inset' }, h(TextField, { label: t('voices.provider'), hint: t('voices.provider.hint'), optional: true, mono: true, value: provider, onInput: setProvider, placeholder: 'embedded' }))),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy, disabled: !complete }, t('voices.add.act')))));
}

/** @param {{sample: Blob | undefined, setSample: (sample: Blob | undefined, name?: string) => void}} props */
function Sample({ sample, setSample }) {
  const [url, setUrl] = useState('');
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const shown = useRef(url);
  useEffect(() => {
    if (!sample) return undefined;
    const made = URL.createObjectURL(sample);
    setUrl(made);
    return () => {
      URL.revokeObjectURL(made);
      setUrl('');
    };
  }, [sample]);
  // What had the focus is replaced: it moves to what takes its place.
  useEffect(() => {
    if (shown.current === url) return;
    shown.current = url;
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(url ? 'audio' : 'input'))?.focus();
  }, [url]);
  if (sample) {
    const isFile = sample instanceof File;
    return h('div', { class: 'stack tight', ref: box },
      h('span', { class: 'label' }, t('voices.sample')),
      h('div', { class: 'player' }, url && h('audio', { src: url, controls: true, 'aria-label': t('voices.sample') })),
      h('div', { class: 'row apart small soft' }, h('span', null, h(Text, null, isFile ? sample.name : t('voices.recording')), ` · ${size(sample.size)}`), h(Button, { small: true, onClick: () => setSample(undefined) }, t(isFile ? 'voices.sample.other' : 'voices.record.discard'))));
  }
  const obstacle = recordingObstacle();
  return h('div', { class: 'stack tight', ref: box },
    h(Drop, { label: t('voices.drop'), hint: t('voices.formats'), accept: '.wav,.mp3,.flac,.ogg,.opus,audio/*', onFiles: ([file]) => setSample(file, file?.name) }),
    obstacle ? h('p', { class: 'small soft' }, t(`voices.record.${obstacle}`)) : h(Recorder, { done: (blob) => setSample(blob) }));
}

/** The microphone is released as soon as this view goes, whatever it waits for. @param {{done: (sample: Blob) => void}} props */
function Recorder({ done }) {
  const [since, setSince] = useState(0);
  const [elapsed, setElapsed] = useState(0);
  const [error, setError] = useState(/** @type {string | undefined} */ (undefined));
  const running = useRef(/** @type {import('../upload/wav.js').Recording | undefined} */ (undefined));
  const waits = useRef(false);
  const gone = useRef(false);
  const begin = async () => {
    const taken = await record();
    if (gone.current) {
      taken.discard();
      return;
    }
    running.current = taken;
    setElapsed(0);
    setSince(Date.now());
  };
  /** @param {import('../upload/wav.js').Recording} taken */
  const stop = async (taken) => {
    running.current = undefined;
    setSince(0);
    const sample = await taken.stop();
    if (gone.current) return;
    if (sample) done(sample);
    else setError(t('voices.record.short'));
  };
  const toggle = async () => {
    if (waits.current) return;
    waits.current = true;
    setError(undefined);
    const taken = running.current;
    await (taken ? stop(taken) : begin()).catch(() => setError(t(taken ? 'voices.record.failed' : 'voices.record.refused')));
    waits.current = false;
  };
  useEffect(() => () => {
    gone.current = true;
    running.current?.discard();
  }, []);
  useEffect(() => {
    if (!since) return undefined;
    const timer = setInterval(() => {
      setElapsed(Date.now() - since);
      if (Date.now() - since >= MAX_RECORDING_MS) toggle();
    }, 200);
    return () => clearInterval(timer);
  }, [since]);
  // One button that changes: it keeps the focus.
  return h('div', { class: 'row' },
    h(Button, { icon: since ? 'stop' : 'record', onClick: toggle }, t(since ? 'voices.record.stop' : 'voices.record')),
    since > 0 && h('span', { class: 'recording', role: 'timer' }, h('i', { 'aria-hidden': 'true' }), duration(Math.floor(elapsed / 1_000) * 1_000), ' / ', duration(MAX_RECORDING_MS)),
    error && h('span', { class: 'small state bad', role: 'alert' }, error));
}
