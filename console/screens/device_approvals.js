/** Which services of a device models may use: the state of each, what changed since, approval and its end. */
import { useAct } from '../act.js';
import { may, path, remove, request } from '../api.js';
import { Bone, Button, Card, Empty, Failure, Notice, Text, Time, toast } from '../components/basic.js';
import { Json } from '../components/code.js';
import { Confirm } from '../components/dialog.js';
import { Icon } from '../components/icon.js';
import { around, lines, ordered } from '../form/difference.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useRef, useState } from '../preact.js';
import { useResource } from '../resource.js';
import { href } from '../router.js';

/** @typedef {import('../types.js').ServiceApproval} ServiceApproval */
/** @typedef {ServiceApproval['state']} State */

/** @type {Record<State, ['good' | 'warn' | 'calm', import('../components/icon.js').IconName]>} */
const LOOKS = { approved: ['good', 'check'], unapproved: ['calm', 'lock'], changed: ['warn', 'warning'] };

/** @param {{state: State}} props */
export function ApprovalState({ state }) {
  const [tone, icon] = LOOKS[state] ?? ['calm', 'question'];
  return h('span', { class: `state ${tone}` }, h(Icon, { name: icon }), t(`approval.${state}`));
}

/** @param {{device: string}} props */
export function DeviceApprovals({ device }) {
  const resource = useResource(path`/v1/devices/${device}/approvals`);
  useLive(resource.reload, [`device:${device}`, 'approval', 'org']);
  /** @type {{policy: 'off' | 'required', items: ServiceApproval[]} | undefined} */
  const data = resource.data;
  if (!data) return h(Card, null, resource.error ? h(Failure, { error: resource.error, retry: resource.reload }) : h(Bone, { width: 260 }));
  return h('div', { class: 'stack' },
    data.policy === 'off'
      ? h(Notice, null, t('approval.off'), ' ', h('a', { href: href('/organisation') }, t('org.title')))
      : h('p', { class: 'soft' }, t('approval.text')),
    data.items.length === 0 && h(Card, { flush: true }, h(Empty, { title: t('device.noServices'), text: t('approval.none.text') })),
    data.items.map((item) => h(Service, { key: item.service, device, item, reload: resource.reload })));
}

/** @param {{device: string, item: ServiceApproval, reload: () => void}} props */
function Service({ device, item, reload }) {
  const place = path`/v1/devices/${device}/services/${item.service}/approval`;
  // The definition that was shown first stays until the person asks for the next: what is approved has been read.
  const [first, setFirst] = useState(item);
  const isOutdated = first.digest !== item.digest;
  const shown = isOutdated ? first : item;
  const [asked, setAsked] = useState(false);
  const heading = useRef(/** @type {HTMLHeadingElement | null} */ (null));
  /** The button that was pressed goes with the act. @param {() => Promise<unknown>} act */
  const useChange = (act) => useAct(async () => {
    try {
      await act();
    } finally {
      reload();
      heading.current?.focus();
    }
  });
  const approve = (/** @type {'device' | 'organisation'} */ scope) => async () => {
    await request('PUT', place, { body: { digest: shown.digest, applies_to: scope } });
    toast(t('approval.done', { service: item.service }));
  };
  const here = useChange(approve('device'));
  const everywhere = useChange(approve('organisation'));
  const revoke = useChange(() => remove(path`/v1/approvals/${item.approved?.id ?? ''}`));
  const busy = here.busy || everywhere.busy || revoke.busy;
  const { approved, state } = item;
  const ofAll = approved?.applies_to === 'organisation';
  return h('section', { class: 'card', 'aria-label': item.service },
    h('header', null,
      h('div', { class: 'row' }, h('h2', { ref: heading, tabIndex: -1, class: 'mono break' }, h(Text, null, item.service)), h(ApprovalState, { state })),
      may('admin') && h('div', { class: 'row' },
        state !== 'approved' && h(Button, { kind: 'primary', small: true, icon: 'check', busy, disabled: isOutdated, onClick: here.run }, t('approval.here')),
        state !== 'approved' && h(Button, { small: true, busy, disabled: isOutdated, title: t('approval.everywhere.text'), onClick: everywhere.run }, t('approval.everywhere')),
        approved && h(Button, { kind: 'danger', small: true, busy, onClick: ofAll ? () => setAsked(true) : revoke.run }, t('keyring.revoke')))),
    h('div', { class: 'body stack' },
      isOutdated && h(Notice, { tone: 'warn', role: 'status', title: t('approval.outdated'), actions: h(Button, { small: true, onClick: () => {
        setFirst(item);
        heading.current?.focus();
      } }, t('approval.outdated.show')) }, t('approval.outdated.text')),
      h(Failure, { error: here.error ?? everywhere.error ?? revoke.error }),
      shown.state === 'changed' && shown.approved ? h(Changes, { item: shown, approved: shown.approved })
        : h('p', { class: 'break' }, shown.description ? h(Text, null, text(shown.description)) : h('span', { class: 'soft' }, t('service.description.none'))),
      approved && h('p', { class: 'small soft' }, t(ofAll ? 'approval.by.organisation' : 'approval.by.device'), ' ', h(Text, null, approved.by), ' · ', h(Time, { at: approved.at })),
      h('details', null, h('summary', { class: 'soft' }, t('service.schema')), h(Json, { value: shown.parameters ?? {}, label: t('service.schema') })),
      shown.output !== undefined && h('details', null, h('summary', { class: 'soft' }, t('service.output')), h(Json, { value: shown.output, label: t('service.output') }))),
    asked && approved && h(Confirm, { title: `${t('keyring.revoke')}: ${item.service}`, text: t('approval.revoke.everywhere'), act: t('keyring.revoke'), onClose: () => setAsked(false), run: async () => {
      await remove(path`/v1/approvals/${approved.id}`);
      reload();
      // After the dialog, which gives the focus back to its button.
      requestAnimationFrame(() => heading.current?.focus());
    } }));
}

/** A description; a device may register anything. @param {unknown} description */
const text = (description) => (typeof description === 'string' ? description : ordered(description));

/** What is not as it was approved. @param {{item: ServiceApproval, approved: NonNullable<ServiceApproval['approved']>}} props */
function Changes({ item, approved }) {
  const parts = /** @type {const} */ ([
    [t('approval.description'), text(approved.description), text(item.description)],
    [t('service.schema'), ordered(approved.parameters), ordered(item.parameters)],
    [t('service.output'), ordered(approved.output), ordered(item.output)],
    [t('service.claims'), ordered(approved.annotations), ordered(item.annotations)],
  ]);
  return h('div', { class: 'stack' },
    h(Notice, { tone: 'warn', title: t('approval.changed.title') }, t('approval.changed.text')),
    parts.filter(([, before, after]) => before !== after).map(([name, before, after]) => h('div', { class: 'stack tight', key: name }, h('h3', null, name), h(Difference, { label: name, before, after }))));
}

const SIGNS = { same: ' ', before: '−', after: '+', gap: ' ' };

/** Lines that went and lines that came. @param {{label: string, before: string, after: string}} props */
function Difference({ label, before, after }) {
  return h('div', { class: 'difference', role: 'group', 'aria-label': label, tabIndex: 0 }, around(lines(before, after)).map(({ kind, text }, index) => h(kind === 'before' ? 'del' : kind === 'after' ? 'ins' : 'div', { key: index, class: kind },
    h('span', { 'aria-hidden': 'true' }, SIGNS[kind]), kind !== 'same' && kind !== 'gap' && h('span', { class: 'hidden' }, t(`approval.line.${kind}`)), h('code', null, h(Text, null, text || ' ')))));
}
