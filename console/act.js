/** One act at a time, such as the sending of a form. */
import { useState } from './preact.js';

/**
 * Whether the act runs, and why the last one failed. An error that the act throws ends it.
 * @param {() => Promise<unknown>} act
 * @param {Error} [before] an error that is shown until the first act
 */
export function useAct(act, before) {
  const [state, setState] = useState({ busy: false, error: before });
  const run = async (/** @type {Event | undefined} */ event = undefined) => {
    event?.preventDefault();
    setState({ busy: true, error: undefined });
    try {
      await act();
      setState({ busy: false, error: undefined });
    } catch (failure) {
      setState({ busy: false, error: /** @type {Error} */ (failure) });
    }
  };
  return { ...state, run };
}
