/** The asynchronous and queued calls of one device, of every caller, newest first. */
import { Card, Empty } from '../components/basic.js';
import { table } from '../components/table.js';
import { t } from '../i18n.js';
import { useLive } from '../live.js';
import { h } from '../preact.js';
import { useList } from '../resource.js';
import { columns } from './calls.js';

/** @param {{device: string}} props */
export function DeviceCalls({ device }) {
  const list = useList('/v1/calls', 'calls', { device_id: device, order: 'desc' });
  useLive(list.reload);
  useLive(list.reload, [`call:${device}`]);
  return h(Card, { flush: true }, table({
    label: t('device.calls'), columns: columns({ device: false }), items: list.data?.items, id: (call) => call.call_id, error: list.error, reload: list.reload, loading: list.loading,
    more: list.data?.more && list.more, empty: h(Empty, { title: t('calls.none'), text: t('calls.none.text') }),
  }));
}
