// The live state: rows of objects and the status of the console, from the stream of the server.

import { parse } from './text.js';

const TOKEN = 'flyball-console-token';

/** State that the views read. `version` changes with the rows. */
export const live = {
  rows: new Map(), version: 0, status: null, connected: false, problem: '', offset: 0, synced: false,
};
const listeners = new Set();
let scheduled = false;

/** Calls a function after changes, at most once per frame. Returns the end of the subscription. */
export function subscribe(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function notify() {
  if (scheduled) return;
  scheduled = true;
  // Hidden pages get no frames.
  const later = document.hidden ? (work) => setTimeout(work, 500) : requestAnimationFrame;
  later(() => {
    scheduled = false;
    listeners.forEach((listener) => listener());
  });
}

/** Returns the time of the server in milliseconds. */
export const now = () => Date.now() + live.offset;
/** Returns the seconds since a time of the server, until now or another time in milliseconds. */
export const since = (time, until) => ((until || now()) - Date.parse(time)) / 1000;

function token() {
  const url = new URL(location.href);
  const given = url.searchParams.get('token');
  if (given) {
    sessionStorage.setItem(TOKEN, given);
    url.searchParams.delete('token');
    history.replaceState(null, '', url.pathname + url.hash);
  }
  return sessionStorage.getItem(TOKEN) ?? '';
}
const secret = token();

async function send(path, options = {}) {
  const headers = { authorization: `Bearer ${secret}`, ...options.headers };
  const response = await fetch(path, { ...options, headers });
  if (!response.ok) {
    const text = await response.text();
    let message = text;
    try { message = parse(text).error ?? text; } catch { /* not JSON: the text is the message */ }
    throw new Error(message);
  }
  return response;
}

/** Requests an answer of the server. */
export async function get(path, signal) {
  return parse(await (await send(path, { signal })).text());
}

/** Performs a write. */
export async function act(action, id) {
  const body = JSON.stringify({ action, id });
  await send('/api/act', { method: 'POST', body, headers: { 'content-type': 'application/json' } });
}

/** Starts or stops an exploration. */
export async function explore(request) {
  await send('/api/explore', { method: 'POST', body: JSON.stringify(request), headers: { 'content-type': 'application/json' } });
}

function apply(event, data) {
  if (event === 'status') {
    live.status = data;
    live.offset = Date.parse(data.now) - Date.now();
  } else if (event === 'objects') {
    if (data.reset) live.rows.clear();
    for (const id of data.removed) live.rows.delete(id);
    for (const row of data.objects) live.rows.set(row.id, row);
    live.version += 1;
    if (!data.more) live.synced = true;
  }
}

/** Reads the stream until it ends. Events are separated by empty lines. */
async function read() {
  const response = await send('/api/stream');
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    live.connected = true;
    live.problem = '';
    const events = (rest + value).split('\n\n');
    rest = events.pop();
    for (const text of events) {
      const [event, data] = text.split('\n');
      apply(event.replace('event: ', ''), parse(data.slice('data: '.length)));
    }
    notify();
  }
}

/** Reads the stream, again and again. */
export async function connect() {
  for (let delay = 500; ; delay = Math.min(delay * 2, 10_000)) {
    try {
      await read();
      live.problem = 'the connection to flyball has ended';
      delay = 500;
    } catch (error) {
      live.problem = error instanceof TypeError ? 'flyball does not respond: is it still running?' : error.message;
    }
    live.connected = false;
    notify();
    await new Promise((resolve) => setTimeout(resolve, delay));
  }
}
