/**
 * What a person sets for this browser: theme, language, time zone, single-letter keys. Kept in
 * localStorage; credentials never are.
 */
import { effect, signal } from './preact.js';

const KEY = 'switchboard.settings';

/** @typedef {{theme: 'system'|'light'|'dark', language: 'en'|'zh', zone: 'local'|'utc', keys: boolean}} Settings */

/** @returns {Partial<Settings>} */
function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? '{}') ?? {};
  } catch {
    return {};
  }
}

const system = typeof navigator === 'object' && /^zh\b/i.test(navigator.language ?? '') ? 'zh' : 'en';

/** @type {import('./vendor/signals.mjs').Signal<Settings>} */
export const settings = signal({ theme: 'system', language: system, zone: 'local', keys: true, ...stored() });

/** Changes some settings, and keeps them. @param {Partial<Settings>} change */
export function set(change) {
  settings.value = { ...settings.value, ...change };
  try {
    localStorage.setItem(KEY, JSON.stringify(settings.value));
  } catch {
    // Storage is blocked: the change lasts as long as the page.
  }
}

if (typeof document === 'object') {
  effect(() => {
    const { theme, language } = settings.value;
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    document.documentElement.lang = language === 'zh' ? 'zh-Hans' : 'en';
  });
}
