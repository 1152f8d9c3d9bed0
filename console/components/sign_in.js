/** The form that makes a session from an API key. The key leaves the page's memory with the request. */
import { useAct } from '../act.js';
import { Problem, request, signedIn } from '../api.js';
import { t } from '../i18n.js';
import { h, signal, useState } from '../preact.js';
import { Button, Failure, Notice } from './basic.js';
import { TextField } from './field.js';

/** Loopback counts as secure for browsers, plain http elsewhere does not. */
const insecure = () => location.protocol === 'http:' && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname);

/** Why the one-time link did not sign in. */
export const refused = signal(/** @type {Error | undefined} */ (undefined));

export function SignIn() {
  const [key, setKey] = useState('');
  const { busy, error, run } = useAct(async () => {
    signedIn((await request('POST', '/v1/session', { body: { api_key: key.trim() }, anonymous: true })).data);
  }, refused.value);
  const wrong = error instanceof Problem && error.kind === 'unknown_api_key' ? t('signIn.refused') : undefined;
  return h('form', { class: 'stack', onSubmit: run, 'data-sign-in': true },
    insecure() && h(Notice, { tone: 'warn', title: t('signIn.insecure') }, t('signIn.insecure.text')),
    h('input', { class: 'hidden', type: 'text', name: 'username', autocomplete: 'username', value: 'api-key', readOnly: true, tabIndex: -1, 'aria-hidden': 'true' }),
    h(TextField, { label: t('signIn.key'), hint: t('signIn.hint'), wrong, type: 'password', name: 'password', autocomplete: 'current-password', spellcheck: false, autocapitalize: 'off', placeholder: 'sb_…', mono: true, required: true, value: key, onInput: setKey }),
    !wrong && h(Failure, { error }),
    h(Button, { kind: 'primary', type: 'submit', busy, disabled: key.trim() === '' }, t('signIn.act')));
}
