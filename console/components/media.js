/** Pictures and sounds of the API, as blobs: with the credentials of the session, and of a type that is harmless. */
import { send } from '../api.js';
import { shownAs } from '../form/safe.js';
import { t } from '../i18n.js';
import { h, useEffect, useState } from '../preact.js';
import { Button, Failure } from './basic.js';
import { Icon } from './icon.js';

/** The address of a blob with the bytes of a path; nothing is read without one. @param {string | undefined} path @param {'image' | 'audio'} kind */
export function useBlob(path, kind) {
  const [state, setState] = useState(/** @type {{url?: string, error?: Error}} */ ({}));
  useEffect(() => {
    if (!path) return undefined;
    const stop = new AbortController();
    /** @type {string | undefined} */
    let url;
    send('GET', path, { accept: `${kind}/*`, signal: stop.signal }).then(async (response) => {
      const blob = await response.blob();
      if (stop.signal.aborted) return;
      if (shownAs(blob.type) !== kind) throw new Error(blob.type);
      url = URL.createObjectURL(blob);
      setState({ url });
    }).catch((error) => { if (!stop.signal.aborted) setState({ error }); });
    return () => {
      stop.abort();
      if (url) URL.revokeObjectURL(url);
      setState({});
    };
  }, [path]);
  return state;
}

/** A picture of the API. @param {{path: string, alt: string}} props */
export function Picture({ path, alt }) {
  const { url, error } = useBlob(path, 'image');
  if (error) return h('span', { class: 'picture-none', role: 'img', 'aria-label': alt, title: error.message }, h(Icon, { name: 'warning' }));
  return url ? h('img', { src: url, alt }) : h('span', { class: 'bone picture-bone' });
}

/** A player that reads the sound when it is asked to. @param {{path: string, label: string}} props */
export function Player({ path, label }) {
  const [wanted, setWanted] = useState(false);
  const { url, error } = useBlob(wanted ? path : undefined, 'audio');
  if (error) return h(Failure, { error, retry: () => setWanted(false) });
  return h('div', { class: 'player' }, url
    ? h('audio', { src: url, controls: true, autoplay: true, 'aria-label': label })
    : h(Button, { small: true, icon: 'play', busy: wanted, label, onClick: () => setWanted(true) }, t('media.play')));
}
