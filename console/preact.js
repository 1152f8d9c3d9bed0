/** The view library: every file imports it from here, so that a newer one is one change. */
export { h, Fragment, render, createContext } from './vendor/preact.mjs';
export { useCallback, useEffect, useId, useLayoutEffect, useMemo, useRef, useState } from './vendor/hooks.mjs';
export { batch, computed, effect, signal } from './vendor/signals.mjs';
