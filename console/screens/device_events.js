/** What a device does and sends while this page is open. */
import { Button, Card, Empty, Text } from '../components/basic.js';
import { Json } from '../components/code.js';
import { clock, maybe, t } from '../i18n.js';
import { useLive } from '../live.js';
import { h, useState } from '../preact.js';

const MAX_EVENTS = 200;

/** @param {{device: string}} props */
export function DeviceEvents({ device }) {
  const [events, setEvents] = useState(/** @type {{key: number, at: string, event: import('../types.js').LiveEvent}[]} */ ([]));
  useLive(['device.'], (event) => {
    if (event.type === 'reload' || event.data.device_id !== device) return;
    setEvents((before) => [{ key: (before[0]?.key ?? 0) + 1, at: new Date().toISOString(), event }, ...before].slice(0, MAX_EVENTS));
  });
  if (events.length === 0) return h(Card, { flush: true }, h(Empty, { title: t('device.noEvents'), text: t('device.noEvents.text') }));
  return h(Card, { title: t('device.events'), flush: true, actions: h(Button, { small: true, onClick: () => setEvents([]) }, t('list.clear.all')) },
    h('ul', { class: 'lines' }, events.map(({ key, at, event }) => h('li', { key },
      h('time', { class: 'faint small number', dateTime: at }, clock(at)),
      h('div', { class: 'grow' }, h('span', null, h(Text, null, (maybe(`event.${event.type}`) ?? event.type).replace('{name}', String(event.data.name ?? '')))), event.data.data !== undefined && h(Json, { value: event.data.data }))))));
}
