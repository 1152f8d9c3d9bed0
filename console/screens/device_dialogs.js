/** The token that a device signs in with. */
import { useAct } from '../act.js';
import { post } from '../api.js';
import { Button, Failure } from '../components/basic.js';
import { Dialog, Secret } from '../components/dialog.js';
import { SelectField } from '../components/field.js';
import { t } from '../i18n.js';
import { h, useState } from '../preact.js';

const TTLS = [{ value: '3600', key: 'device.token.hour' }, { value: '86400', key: 'device.token.day' }, { value: '2592000', key: 'device.token.month' }];

/** @param {{device: string, onClose: () => void}} props */
export function NewToken({ device, onClose }) {
  const [ttl, setTtl] = useState('86400');
  const [token, setToken] = useState(/** @type {string | undefined} */ (undefined));
  const { busy, error, run } = useAct(async () => {
    setToken((await post('/v1/tokens', { subject: `device:${device}`, scopes: ['device'], ttl_s: Number(ttl) })).access_token);
  });
  const named = t(/** @type {any} */ (TTLS.find((each) => each.value === ttl)?.key));
  if (token) return h(Secret, { title: `${t('device.token')}: ${device}`, secret: token, qr: t('device.token.qr', { id: device }), onClose });
  return h(Dialog, { title: `${t('device.token')}: ${device}`, onClose },
    h('form', { class: 'stack', onSubmit: run },
      h('p', { class: 'soft' }, t('device.token.text', { ttl: named })),
      h(SelectField, { label: t('device.token.ttl'), value: ttl, onChange: setTtl, options: TTLS.map(({ value, key }) => ({ value, label: t(/** @type {any} */ (key)) })) }),
      h(Failure, { error }),
      h('div', { class: 'actions' }, h(Button, { onClick: onClose }, t('act.cancel')), h(Button, { kind: 'primary', type: 'submit', busy }, t('device.token.issue')))));
}
