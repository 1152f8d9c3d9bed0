/** The files of unfinished uploads, so that a reload continues them. Without storage, the person chooses the file again. */

const NAME = 'switchboard.uploads';

/** @template T @param {'readonly' | 'readwrite'} mode @param {(store: IDBObjectStore) => IDBRequest<T>} act @returns {Promise<T | undefined>} */
async function withStore(mode, act) {
  try {
    const database = await new Promise((/** @type {(database: IDBDatabase) => void} */ resolve, reject) => {
      const opening = indexedDB.open(NAME, 1);
      opening.onupgradeneeded = () => opening.result.createObjectStore('files');
      opening.onsuccess = () => resolve(opening.result);
      opening.onerror = () => reject(opening.error);
    });
    try {
      return await new Promise((resolve, reject) => {
        const asked = act(database.transaction('files', mode).objectStore('files'));
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
      });
    } finally {
      database.close();
    }
  } catch {
    // Storage is blocked or full.
    return undefined;
  }
}

/** @param {string} id @param {Blob} file */
export const keep = (id, file) => withStore('readwrite', (store) => store.put(file, id));
/** @param {string} id @returns {Promise<Blob | undefined>} */
export const kept = (id) => withStore('readonly', (store) => store.get(id));
/** @param {string} id */
export const forget = (id) => withStore('readwrite', (store) => store.delete(id));
/** The ids of what is kept. @returns {Promise<string[]>} */
export const keptIds = async () => /** @type {string[]} */ (await withStore('readonly', (store) => store.getAllKeys()) ?? []);
