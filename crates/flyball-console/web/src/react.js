// Hooks that several views use.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from 'preact/hooks';
import { get, subscribe } from './live.js';

/** Renders again after changes of the live state, at most every `interval` milliseconds. */
export function useLive(interval = 200) {
  const [, render] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    let timer = 0;
    let last = 0;
    const end = subscribe(() => {
      if (timer) return;
      const wait = Math.max(0, last + interval - performance.now());
      timer = setTimeout(() => { timer = 0; last = performance.now(); render(); }, wait);
    });
    return () => { end(); clearTimeout(timer); };
  }, [interval]);
}

/** Renders again every second, for ages. */
export function useSeconds() {
  const [, render] = useReducer((count) => count + 1, 0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || render(), 1000);
    return () => clearInterval(timer);
  }, []);
}

/** Requests an answer now, after changes of the path, and every `interval` milliseconds while the page is visible. */
export function useAnswer(path, interval = 2000) {
  const [answer, set] = useState({ path: '', value: null, error: '' });
  useEffect(() => {
    if (!path) return undefined;
    const abort = new AbortController();
    let timer = 0;
    const load = async () => {
      try {
        if (!document.hidden) {
          const value = await get(path, abort.signal);
          set({ path, value, error: '' });
        }
      } catch (error) {
        if (abort.signal.aborted) return;
        set((before) => ({ path, value: before.path === path ? before.value : null, error: error.message }));
      }
      if (!abort.signal.aborted) timer = setTimeout(load, interval);
    };
    load();
    return () => { abort.abort(); clearTimeout(timer); };
  }, [path, interval]);
  return answer.path === path ? answer : { path, value: null, error: '' };
}

/** Returns the size of an element. */
export function useSize(ref) {
  const [size, set] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    if (!ref.current) return undefined;
    const observer = new ResizeObserver(([entry]) => {
      const { width, height } = entry.contentRect;
      set((before) => (before.width === width && before.height === height ? before : { width, height }));
    });
    observer.observe(ref.current);
    return () => observer.disconnect();
  }, [ref]);
  return size;
}

/** Returns a reference to the last value, for handlers that outlive a render. */
export function useLatest(value) {
  const ref = useRef(value);
  ref.current = value;
  return ref;
}
