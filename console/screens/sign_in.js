/** What a person without a session sees. */
import { Mark } from '../components/icon.js';
import { segmented } from '../components/field.js';
import { SignIn } from '../components/sign_in.js';
import { t } from '../i18n.js';
import { h } from '../preact.js';
import { set, settings } from '../settings.js';

export function SignInPage() {
  return h('main', { class: 'entry', tabIndex: -1 },
    h('div', { class: 'entry-form' },
      h('div', { class: 'entry-brand' }, h(Mark, null), 'Switchboard'),
      h('h1', null, t('signIn.title')),
      h('p', { class: 'soft' }, t('signIn.text')),
      h(SignIn, null),
      h('p', { class: 'small soft' }, t('signIn.up'), ' ', h('code', null, 'switchboard up')),
      h('div', { class: 'row' }, segmented({ label: t('app.language'), value: settings.value.language, onChange: (language) => set({ language }), options: [{ value: 'en', label: 'EN' }, { value: 'zh', label: '中文' }] }))),
    h('div', { class: 'entry-board', 'aria-hidden': 'true' }, h(Board, null)));
}

/** A switchboard: rows of jacks, three cords plugged. */
function Board() {
  const jacks = [];
  for (let row = 0; row < 9; row += 1) {
    for (let column = 0; column < 8; column += 1) jacks.push(h('circle', { key: `${row}-${column}`, class: 'board-jack', cx: 40 + column * 56, cy: 40 + row * 60, r: 9 }));
  }
  const lit = [[40, 100], [264, 280], [152, 40], [376, 340], [208, 460], [432, 160]];
  return h('svg', { viewBox: '0 0 472 560', preserveAspectRatio: 'xMidYMid slice' },
    jacks,
    lit.map(([cx, cy]) => h('circle', { key: `${cx}${cy}`, class: 'board-lit', cx, cy, r: 9 })),
    h('path', { class: 'board-cord one', d: 'M40 100c0 230 224 20 224 180' }),
    h('path', { class: 'board-cord two', d: 'M152 40c0 330 224 90 224 300' }),
    h('path', { class: 'board-cord three', d: 'M208 460c20 140 224-20 224-300' }));
}
