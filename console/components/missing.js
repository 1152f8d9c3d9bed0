/** What stands at an address that leads nowhere. */
import { t } from '../i18n.js';
import { h } from '../preact.js';
import { href } from '../router.js';
import { Button, Empty } from './basic.js';

export function Missing() {
  return h(Empty, { heading: 'h1', title: t('app.notFound'), text: t('app.notFound.text'), action: h(Button, { href: href('/') }, t('app.toOverview')) });
}
