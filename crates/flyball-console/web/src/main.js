// The page: navigation, keys and the view of the address.

import { html } from 'htm/preact';
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { Causes } from './causes.js';
import { Controllers } from './controllers.js';
import { Explore } from './explore.js';
import { connect, live } from './live.js';
import { ObjectView } from './object.js';
import { Objects, toggleUnready } from './objects.js';
import { Performance } from './performance.js';
import { Permissions } from './permissions.js';
import { useLatest, useLive } from './react.js';
import { address, go, route } from './route.js';
import { clock } from './text.js';

const VIEWS = [
  { id: 'objects', label: 'Objects', key: 'o' }, { id: 'controllers', label: 'Controllers', key: 'c' },
  { id: 'performance', label: 'Performance', key: 'f' }, { id: 'causes', label: 'Causes', key: 'a' },
  { id: 'permissions', label: 'Permissions', key: 'p' }, { id: 'explore', label: 'Explore', key: 'e' },
];
/** The views of this console: explorations belong to `flyball dev`. */
const views = () => VIEWS.filter((view) => view.id !== 'explore' || live.status?.explores);
const keys = () => [
  ['/', 'filter'], ['↑ ↓', 'select; also j, k, Home, End, Page keys'], ['← →', 'collapse and expand; along edges of the graph'],
  ['Enter', 'open'], ['Esc', 'close, clear, back'], ...views().map((view) => [`g ${view.key}`, view.label.toLowerCase()]),
  ['u', 'unready objects only'], ['t', 'dark or light'], ['Tab', 'next part of the page'], ['?', 'this help'],
];

const THEME = 'flyball-console-theme';
const isDark = (theme) => (theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches);

function useTheme() {
  const [theme, set] = useState(localStorage.getItem(THEME) ?? '');
  const [, render] = useState(0);
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme; else delete document.documentElement.dataset.theme;
    // Charts read their colors after this.
    render((count) => count + 1);
    const media = matchMedia('(prefers-color-scheme: dark)');
    const changed = () => render((count) => count + 1);
    media.addEventListener('change', changed);
    return () => media.removeEventListener('change', changed);
  }, [theme]);
  const toggle = () => {
    const next = isDark(theme) ? 'light' : 'dark';
    localStorage.setItem(THEME, next);
    set(next);
  };
  return [isDark(theme) ? 'dark' : 'light', toggle];
}

function Help({ onClose }) {
  const dialog = useRef(null);
  useEffect(() => { dialog.current.showModal(); }, []);
  return html`<dialog ref=${dialog} class="help" aria-label="Keys" onClose=${onClose} onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <h2>Keys</h2>
    <dl>${keys().map(([key, text]) => html`<dt>${key.split(' ').map((part) => html`<kbd>${part}</kbd> `)}</dt><dd>${text}</dd>`)}</dl>
    <p class="faint">● ready ◐ not ready ▲ failed. <a href="/licenses.txt" target="_blank" rel="noreferrer">Licenses</a></p>
    <button class="button" autofocus onClick=${() => dialog.current.close()}>Close</button>
  </dialog>`;
}

/** Handles keys that concern the page. */
function useKeys(handlers) {
  // One listener for all renders, so that the first key of a pair survives them.
  const latest = useLatest(handlers);
  useEffect(() => {
    let first = '';
    let timer = 0;
    const onKeyDown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      const { target, key } = event;
      if (document.querySelector('dialog[open]')) return;
      if (target.matches('input, select, textarea')) {
        if (key === 'Escape') {
          if (target.value && target.matches('input')) {
            target.value = '';
            target.dispatchEvent(new Event('input', { bubbles: true }));
          } else {
            document.querySelector('.view .list')?.focus();
          }
          event.preventDefault();
        }
        return;
      }
      if (first === 'g') {
        const view = views().find((view) => view.key === key);
        first = '';
        if (view) { go(view.id); event.preventDefault(); }
        return;
      }
      const actions = {
        g: () => { first = 'g'; clearTimeout(timer); timer = setTimeout(() => { first = ''; }, 1500); },
        '/': () => {
          const field = () => document.querySelector('[data-search]');
          if (field()) { field().focus(); return; }
          go('objects');
          setTimeout(() => field()?.focus(), 60);
        },
        '?': () => latest.current.setHelp(true),
        t: () => latest.current.toggleTheme(),
        u: () => { toggleUnready(); go('objects'); document.dispatchEvent(new Event('flyball:filter')); },
        Escape: () => { if (route().view !== 'objects') history.length > 1 ? history.back() : go('objects'); },
      };
      if (!(key in actions)) return;
      actions[key]();
      event.preventDefault();
    };
    addEventListener('keydown', onKeyDown);
    return () => { removeEventListener('keydown', onKeyDown); clearTimeout(timer); };
  }, []);
}

function useRoute() {
  const [current, set] = useState(route());
  useEffect(() => {
    const changed = () => set(route());
    addEventListener('hashchange', changed);
    document.addEventListener('flyball:filter', changed);
    return () => { removeEventListener('hashchange', changed); document.removeEventListener('flyball:filter', changed); };
  }, []);
  return current;
}

/** The banner while the cluster does not respond. */
function Disconnected() {
  useLive(500);
  const time = live.status?.disconnected;
  // The element exists before its text, so that screen readers announce it.
  return html`<div class="disconnected" role="alert">${time ? html`<p><span class="glyph" aria-hidden="true">▲</span> <b>No connection to the cluster since ${clock(time.replace(/\.\d+/, ''))}</b>. The page shows the last known state.</p>` : null}</div>`;
}

function Connection() {
  useLive(500);
  const { status, connected, problem: ended } = live;
  const problem = connected && status?.disconnected ? 'no connection to the cluster' : ended;
  const isLive = connected && !problem;
  const operators = status?.operators ?? [];
  const failing = operators.filter((operator) => operator.error);
  return html`<div class="connection">
    <div class="cluster" title=${status?.cluster}><bdi>${status?.context || status?.cluster?.replace(/^https?:\/\//, '').replace(/\/$/, '') || ''}</bdi></div>
    ${status?.namespace ? html`<div>namespace <bdi>${status.namespace}</bdi></div>` : null}
    <div role="status" class=${isLive ? 'good' : problem ? 'bad' : 'faint'}><span class="glyph" aria-hidden="true">${isLive ? '●' : problem ? '▲' : '◌'}</span> ${isLive ? 'live' : problem || 'connecting'}</div>
    ${operators.length ? html`<div class=${failing.length ? 'bad' : 'faint'} title=${failing.map((operator) => `${operator.name}: ${operator.error}`).join('\n')}>
      ${operators.length - failing.length} of ${operators.length} ${operators.length === 1 ? 'operator' : 'operators'}</div>` : null}
    <div class="faint">${status ? (status.write ? 'read and write' : 'read only') : ''}</div>
  </div>`;
}

/** The links to the views. That of explorations appears with the first status. */
function Navigation({ current }) {
  useLive(1000);
  return views().map((item) => html`<a key=${item.id} class="nav" href=${address(item.id)} aria-current=${item.id === current ? 'page' : undefined}>
    <span>${item.label}</span><span class="hint-keys" aria-hidden="true"><kbd>g</kbd><kbd>${item.key}</kbd></span></a>`);
}

function App() {
  const [help, setHelp] = useState(false);
  const [theme, toggleTheme] = useTheme();
  const { view, rest } = useRoute();
  useKeys({ setHelp, toggleTheme });
  const current = view === 'object' || view === 'ref' ? 'objects' : view;
  const shown = view === 'controllers' ? html`<${Controllers} theme=${theme} />`
    : view === 'performance' ? html`<${Performance} theme=${theme} />`
    : view === 'explore' ? html`<${Explore} />`
    : view === 'causes' ? html`<${Causes} key=${rest[0] ?? ''} rest=${rest} />`
      : view === 'permissions' ? html`<${Permissions} />`
        : view === 'object' || view === 'ref' ? html`<${ObjectView} key=${`${view}/${rest.slice(0, view === 'object' ? 1 : 4).join('/')}`} view=${view} rest=${rest} />`
          : html`<${Objects} />`;
  return html`<div class="app">
    <nav class="rail" aria-label="Views">
      <a class="brand" href=${address('objects')}><img src="/icon.svg" alt="" width="22" height="22" /><span>Flyball</span></a>
      <${Navigation} current=${current} />
      <span class="grow"></span>
      <${Connection} />
      <div class="tools"><button class="button quiet" onClick=${toggleTheme} aria-label="Dark or light"><span aria-hidden="true">${theme === 'dark' ? '☀' : '☾'}</span></button>
        <button class="button quiet" onClick=${() => setHelp(true)} aria-label="Keys"><span aria-hidden="true">?</span></button></div>
    </nav>
    <main><${Disconnected} />${shown}</main>
    ${help ? html`<${Help} onClose=${() => setHelp(false)} />` : null}
  </div>`;
}

if (!location.hash) history.replaceState(null, '', address('objects'));
render(html`<${App} />`, document.getElementById('app'));
connect();
