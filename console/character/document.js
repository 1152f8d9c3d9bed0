/** A versioned document that is edited: the draft, saving with If-Match, and a conflict with another change. */
import { Problem, request } from '../api.js';
import { useLive } from '../live.js';
import { useLayoutEffect, useState } from '../preact.js';
import { useLoad } from '../resource.js';
import { useUnsaved } from '../unsaved.js';
import { byField, changed, merge, threeWay } from './fields.js';

/** @typedef {import('./fields.js').Flat} Flat */
/** @typedef {{data: any, etag: string | undefined}} Held */

/**
 * @param {string} path of the document
 * @param {(data: any) => Flat} flat its fields
 * @param {(before: Flat, after: Flat) => unknown} patch the merge patch
 * @param {string} [prefix] the member of the document that holds the settings
 */
export function useDocument(path, flat, patch, prefix) {
  const resource = useLoad((signal) => request('GET', path, { signal }), [path]);
  // The draft is based on `held`: a newer document does not move under it.
  const [held, setHeld] = useState(/** @type {Held | undefined} */ (undefined));
  const [draft, setDraft] = useState(/** @type {Flat | undefined} */ (undefined));
  const [error, setError] = useState(/** @type {Error | undefined} */ (undefined));
  const [busy, setBusy] = useState(false);
  const [theirs, setTheirs] = useState(/** @type {Held | undefined} */ (undefined));
  useLive(resource.reload);
  const base = held && flat(held.data);
  const values = draft ?? base;
  const changes = base && draft ? changed(base, draft) : [];
  const dirty = changes.length > 0;
  // Before the next input: a later effect would drop what was typed after this rendering.
  useLayoutEffect(() => {
    if (resource.data && !dirty) {
      setHeld(resource.data);
      setDraft(undefined);
    }
  }, [resource.data, dirty]);
  useUnsaved(dirty);

  /** @param {Held} on @param {Flat} wanted */
  const send = async (on, wanted) => {
    setBusy(true);
    setError(undefined);
    try {
      const answer = await request('PATCH', path, { etag: on.etag, body: patch(flat(on.data), wanted), contentType: 'application/merge-patch+json' });
      setHeld(answer);
      setDraft(undefined);
      setTheirs(undefined);
      resource.reload();
      return true;
    } catch (failure) {
      if (failure instanceof Problem && failure.status === 412) {
        try {
          setTheirs(await request('GET', path));
        } catch (other) {
          setError(/** @type {Error} */ (other));
        }
      } else setError(/** @type {Error} */ (failure));
      return false;
    } finally {
      setBusy(false);
    }
  };
  const differences = base && draft && theirs ? threeWay(base, draft, flat(theirs.data)) : [];
  return {
    data: held?.data, etag: held?.etag, base, values, changes, dirty, busy, error,
    loadError: resource.error, reload: resource.reload,
    wrong: error instanceof Problem ? byField(error.errors, prefix) : {},
    /** Changes one field of the draft. @param {string} path @param {any} value */
    set: (path, value) => setDraft((before) => ({ ...(before ?? base), [path]: value })),
    discard: () => {
      setDraft(undefined);
      setError(undefined);
    },
    save: async () => (held && draft ? send(held, draft) : false),
    conflict: theirs && draft ? differences : undefined,
    closeConflict: () => setTheirs(undefined),
    /** @param {Record<string, 'mine' | 'theirs'>} kept */
    keep: async (kept) => {
      if (!theirs || !draft) return false;
      const merged = merge(draft, flat(theirs.data), differences, kept);
      setHeld(theirs);
      setDraft(merged);
      setTheirs(undefined);
      if (changed(flat(theirs.data), merged).length > 0) return send(theirs, merged);
      setDraft(undefined);
      return true;
    },
  };
}
