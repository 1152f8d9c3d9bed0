/** The nodes of the installation, for its operator: which processes there are, and what each needs. */
import { Card, Empty, Failure, Head, Id, Notice, Text, Time } from '../components/basic.js';
import { Icon } from '../components/icon.js';
import { table } from '../components/table.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h } from '../preact.js';
import { useResource } from '../resource.js';

/** @typedef {import('../types.js').Node} ClusterNode */

/** @type {import('../screens.js').Screen} */
export const cluster = { paths: ['/cluster'], title: 'cluster.title', group: 'manage', icon: 'cluster', audience: 'operator', view: Cluster };

function Cluster() {
  const data = useResource('/v1/nodes');
  useLive(data.reload);
  /** @type {ClusterNode[] | undefined} */
  const nodes = data.data?.nodes;
  const versions = [...new Set((nodes ?? []).map((node) => node.version).filter((version) => version !== null))];
  const down = (nodes ?? []).filter((node) => node.ready === false);
  return h('div', { class: 'stack' },
    h(Head, { title: t('cluster.title'), text: t('cluster.text') }),
    nodes && data.error && h(Failure, { error: data.error, retry: data.reload }),
    versions.length > 1 && h(Notice, { tone: 'warn', title: t('cluster.mixed') }, t('cluster.mixed.text', { versions: versions.join(', ') })),
    down.length > 0 && h(Notice, { tone: 'bad', role: 'status', title: t('cluster.down', { n: down.length }) }, t('cluster.down.text')),
    nodes && nodes.length === 1 && h(Notice, null, t('cluster.one')),
    h(Card, { flush: true }, table({
      label: t('cluster.title'), items: nodes, id: (node) => node.id, error: data.error, reload: data.reload, bones: 3,
      empty: h(Empty, { title: t('cluster.none'), text: t('cluster.none.text') }),
      columns: [
        { title: t('cluster.node'), width: 140, cell: (node) => h('span', { class: 'two-lines' }, h('strong', null, node.role ?? t('unknown')), h(Id, { id: node.id })) },
        { title: t('cluster.state'), width: 90, cell: (node) => h(NodeState, { node }) },
        { title: t('cluster.checks'), width: 180, cell: (node) => h('ul', { class: 'checks small' }, node.checks.map((check) => h('li', { key: check.name }, h('span', { class: `state ${check.ok ? 'good' : 'bad'}` }, h(Icon, { name: check.ok ? 'check' : 'cross' }), check.name), check.detail && h('span', { class: 'soft' }, h(Text, null, check.detail))))) },
        { title: t('cluster.version'), width: 60, wide: true, cell: (node) => node.version && h('code', null, node.version) },
        { title: t('cluster.up'), width: 80, wide: true, cell: (node) => node.started_at && h('span', { class: 'soft' }, h(Time, { at: node.started_at })) },
        { title: t('cluster.devices'), width: 50, number: true, cell: (node) => (node.devices == null ? h('span', { class: 'faint' }, '–') : t('cluster.devices.n', { n: node.devices })) },
      ],
      foot: nodes && `${t('cluster.nodes', { n: nodes.length })} · ${t('cluster.devices.n', { n: nodes.reduce((all, node) => all + (node.devices ?? 0), 0) })}`,
    })));
}

/** @param {{node: ClusterNode}} props */
function NodeState({ node }) {
  if (node.draining) return h('span', { class: 'state warn' }, h(Icon, { name: 'clock' }), t('cluster.draining'));
  if (node.ready === null) return h('span', { class: 'state calm' }, h(Icon, { name: 'question' }), t('unknown'));
  return node.ready ? h('span', { class: 'state good' }, h(Icon, { name: 'check' }), t('cluster.ready')) : h('span', { class: 'state bad' }, h(Icon, { name: 'cross' }), t('cluster.notReady'));
}
