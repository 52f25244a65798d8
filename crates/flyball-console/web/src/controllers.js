// View 3: controllers: queues, charts of 15 minutes, notable keys, caches, watches and leases.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { Chart } from './chart.js';
import { Hint } from './hint.js';
import { since } from './live.js';
import { List } from './list.js';
import { ObjectName, Pill, Problem, Table, Tabs, Tile } from './parts.js';
import { Waiting } from './object.js';
import { useAnswer, useSeconds } from './react.js';
import { goToObject } from './route.js';
import { age, bytes, count, duration, objectName } from './text.js';

const kept = { selected: '', tab: 'queue' };

const QUEUE = ['ready', 'running', 'delayed', 'backoff', 'throttled', 'held'];

function Charts({ history, theme }) {
  const times = history.counts.map((_, at) => history.start + at * history.step);
  const good = history.counts.map((total, at) => total - history.errors[at]);
  const rate = `${count(history.reconciles, 'reconcile')} and ${count(history.failures, 'error')} in 15 minutes`;
  return html`<div class="charts">
    <${Chart} title="Reconciles per 15 s" times=${times} theme=${theme} format=${(value) => (Number.isInteger(value) ? value : '')} summary=${rate}
      series=${[{ label: 'all', values: history.counts, tone: 'accent', bars: true }, { label: 'errors', values: history.errors, tone: 'bad', bars: true }]} />
    <${Chart} title="Duration" times=${times} theme=${theme} format=${duration} summary=${`median ${duration(history.p50)}, 99th percentile ${duration(history.p99)}`}
      series=${[{ label: 'median', values: history.median, tone: 'accent' }, { label: 'p99', values: history.slow, tone: 'warning', dash: [3, 3] }]} />
  </div>`;
}

function KeyList({ items, label, empty, row, open }) {
  const [selected, select] = useState('');
  const keyOf = (item) => objectName(item.object ?? item);
  return html`<${List} label=${label} items=${items} keyOf=${keyOf} height=${30} selected=${selected} onSelect=${select} onOpen=${open} row=${row} empty=${empty} />`;
}

function Queue({ controller, operator }) {
  const keys = controller.queue?.keys ?? [];
  const object = (key) => ({ group: controller.group, kind: controller.kind, namespace: key.namespace, name: key.name });
  return html`<${KeyList} label="Keys in the queue" items=${keys} open=${(key) => goToObject(object(key))} empty="The queue is empty: all keys are idle."
    row=${(key) => html`<div class="key-row"><bdi class="ellipsis mono">${objectName(key)}</bdi>
      <${Pill} tone=${{ backoff: 'bad', throttled: 'bad', running: 'good', held: 'warning' }[key.state] ?? 'neutral'}>${key.state}<//>
      <span class="ellipsis"><${Waiting} plain entry=${{ key, active: controller.active, waitsFor: controller.waitsFor, operator }} /></span></div>`} />`;
}

function Slowest({ history }) {
  return html`<${KeyList} label="Slowest keys" items=${history.slowest} open=${(key) => goToObject(key.object, key.reconcile)} empty="No reconcile in 15 minutes."
    row=${(key) => html`<div class="key-row"><bdi class="ellipsis mono">${objectName(key.object)}</bdi><b>${duration(key.took)}</b>
      <span class="faint">slowest of ${count(key.count, 'reconcile')}, ${duration(key.total)} in total</span></div>`} />`;
}

function Failing({ history }) {
  return html`<${KeyList} label="Most failing keys" items=${history.failing} open=${(key) => goToObject(key.object, key.reconcile)} empty="No errors in 15 minutes."
    row=${(key) => html`<div class="key-row"><bdi class="ellipsis mono">${objectName(key.object)}</bdi>
      <b class="bad">${key.failures} of ${key.count}</b><bdi class="ellipsis" title=${key.error}>${key.error}</bdi></div>`} />`;
}

function Stores({ stores }) {
  const columns = [{ label: 'Kind' }, { label: 'Namespace' }, { label: 'Objects', class: 'number' }, { label: 'Memory', class: 'number' },
    { label: 'Last change', class: 'number' }, { label: 'Revision', class: 'number' }, { label: 'State' }];
  const rows = stores.map((store) => ({ cells: [
    html`<bdi>${store.kind}</bdi>${store.selection ? html` <bdi class="faint">${store.selection}</bdi>` : null}`,
    store.namespace ?? 'all', (store.objects ?? 0).toLocaleString('en'), bytes(store.bytes),
    store.changed ? `${age(since(store.changed))} ago` : '–', html`<bdi class="mono">${store.revision}</bdi>`,
    store.error ? html`<span class="bad" title=${store.error.message}><bdi>${store.error.message}</bdi> for ${age(since(store.error.since))}</span>`
      : store.absent ? html`<span class="warning">not installed</span>` : store.synced ? 'synced' : html`<span class="warning">listing</span>`,
  ] }));
  return html`<${Table} label="Caches of the operator" columns=${columns} rows=${rows} empty="No caches." />`;
}

function Leases({ leases, error }) {
  const columns = [{ label: 'Lease' }, { label: 'Holder' }, { label: 'Renewed', class: 'number' }, { label: 'Duration', class: 'number' },
    { label: 'Transitions', class: 'number' }, { label: 'State' }];
  const rows = leases.map((lease) => ({ cells: [
    html`<bdi>${lease.namespace}/${lease.name}</bdi>`, html`<bdi>${lease.holder || '–'}</bdi>`,
    lease.renewed ? `${age(since(lease.renewed))} ago` : '–', lease.duration ? `${lease.duration} s` : '–', lease.transitions ?? 0,
    lease.expired ? html`<span class="bad">expired</span>` : lease.holder ? 'held' : html`<span class="warning">free</span>`] }));
  return html`<${Problem}>${error && `Leases: ${error}`}<//><${Table} label="Leases" columns=${columns} rows=${rows} empty="No leases." />`;
}

function Watches({ watches }) {
  const columns = [{ label: 'Kind' }, { label: 'Group' }, { label: 'Objects', class: 'number' }, { label: 'Last news', class: 'number' }, { label: 'State' }];
  const rows = watches.map((watch) => ({ cells: [
    html`<bdi>${watch.kind}</bdi>`, html`<bdi>${watch.group || 'core'}</bdi>`, watch.objects.toLocaleString('en'),
    watch.changed ? `${age(since(watch.changed))} ago` : '–',
    watch.error ? html`<bdi class=${watch.denied ? 'warning' : 'bad'} title=${watch.error}>${watch.denied ? 'denied' : watch.error}</bdi>` : watch.synced ? 'synced' : 'listing'] }));
  return html`<${Table} label="Watches of this console" columns=${columns} rows=${rows} empty="No watches." />`;
}

function Controller({ operator, controller, theme }) {
  const [, render] = useState(0);
  const { history } = controller;
  const queue = controller.queue ?? {};
  const waiting = QUEUE.filter((state) => queue[state]).map((state) => `${queue[state]} ${state}`).join(' · ');
  const stores = operator.state.stores ?? [];
  const tabs = [{ id: 'queue', label: 'Queue', count: (queue.keys ?? []).length + (queue.keysOmitted ?? 0) },
    { id: 'slowest', label: 'Slowest', count: history.slowest.length }, { id: 'failing', label: 'Failing', count: history.failing.length },
    { id: 'stores', label: 'Caches', count: stores.length }];
  const tab = tabs.some((one) => one.id === kept.tab) ? kept.tab : 'queue';
  const lease = operator.state.lease;
  return html`<div class="pane">
    <header class="bar sub"><h2><bdi>${controller.name}</bdi></h2>
      <span class="faint"><bdi>${controller.kind}</bdi>, ${count(controller.workers ?? 0, 'worker')}</span>
      ${controller.active ? html`<${Pill} tone="good">active<//>` : html`<${Pill} tone="warning">waits for ${(controller.waitsFor ?? []).join(', ')}<//>`}
      ${lease ? html`<span class="faint">lease <bdi>${lease.namespace}/${lease.name}</bdi> ${lease.leading ? 'held here' : html`held by <bdi>${lease.holder || 'nobody'}</bdi>`}</span>` : null}
      ${lease?.error ? html`<span class="bad"><bdi>${lease.error.message}</bdi></span>` : null}</header>
    <div class="tiles">
      <${Tile} label="Reconciles, 15 min" value=${history.reconciles.toLocaleString('en')} />
      <${Tile} label="Errors" value=${history.failures.toLocaleString('en')} tone=${history.failures ? 'bad' : ''} />
      <${Tile} label="Median" value=${duration(history.p50)} />
      <${Tile} label="p99" value=${duration(history.p99)} />
      <${Tile} label="Writes each" value=${history.reconciles ? (history.writes / history.reconciles).toFixed(2) : '–'} />
      <${Tile} label="Queue" value=${waiting || 'empty'} tone="words" hint=${waiting} />
    </div>
    <${Charts} history=${history} theme=${theme} />
    <${Tabs} label="Lists" tabs=${tabs} value=${tab} onChange=${(id) => { kept.tab = id; render((count) => count + 1); }} />
    ${tab === 'queue' ? html`<${Queue} controller=${controller} operator=${operator} />${queue.keysOmitted ? html`<p class="faint">and ${count(queue.keysOmitted, 'key')} more</p>` : null}`
      : tab === 'slowest' ? html`<${Slowest} history=${history} />`
        : tab === 'failing' ? html`<${Failing} history=${history} />` : html`<${Stores} stores=${stores} />`}
  </div>`;
}

export function Controllers({ theme }) {
  useSeconds();
  const [, render] = useState(0);
  const { value: answer, error } = useAnswer('/api/controllers', 2000);
  const items = [];
  for (const [at, operator] of (answer?.operators ?? []).entries()) {
    items.push({ id: `o${at}`, operator, heading: true });
    for (const controller of operator.controllers) items.push({ id: `o${at}/${controller.name}`, operator, controller });
  }
  items.push({ id: 'cluster', section: 'Cluster' }, { id: 'leases', title: 'Leases', note: answer?.leases.length }, { id: 'watches', title: 'Watches', note: answer?.watches.length });
  const first = items.find((item) => item.controller) ?? items.find((item) => item.heading) ?? items.find((item) => !item.section);
  const chosen = items.find((item) => item.id === kept.selected) ?? first;
  const select = (id) => {
    // Titles are no content; the next item is.
    if (id === 'cluster') id = kept.selected === 'leases' ? items[Math.max(0, items.length - 4)].id : 'leases'; kept.selected = id; render((count) => count + 1); };
  const row = (item) => {
    if (item.section) return html`<div class="nav-row operator">${item.section}</div>`;
    if (item.heading) return html`<div class="nav-row operator"><bdi class="ellipsis">${item.operator.name}</bdi>${item.operator.error ? html`<span class="bad" title=${item.operator.error}>▲</span>` : null}</div>`;
    if (item.controller) {
      const { history } = item.controller;
      return html`<div class="nav-row"><bdi class="ellipsis">${item.controller.name}</bdi>
        ${history.failures ? html`<span class="bad">${history.failures} ▲</span>` : html`<span class="faint">${history.reconciles}</span>`}</div>`;
    }
    return html`<div class="nav-row"><span>${item.title}</span><span class="faint">${item.note}</span></div>`;
  };
  return html`<section class="view controllers" aria-label="Controllers">
    <header class="bar"><h1>Controllers</h1><span class="faint">last 15 minutes</span></header>
    <${Problem}>${error}<//>
    <div class="master">
      <${List} autofocus label="Controllers" items=${items} keyOf=${(item) => item.id} height=${32} selected=${chosen.id} onSelect=${select} row=${row} />
      ${!answer ? html`<div class="pane empty">Reading…</div>`
        : chosen.controller ? html`<${Controller} key=${chosen.id} operator=${chosen.operator} controller=${chosen.controller} theme=${theme} />`
          : chosen.heading ? html`<${Operator} operator=${chosen.operator} />`
            : chosen.id === 'leases' ? html`<div class="pane">${answer.operators.length ? null : html`<${Hint} />`}<${Leases} leases=${answer.leases} error=${answer.leasesError} /></div>`
              : html`<div class="pane"><${Watches} watches=${answer.watches} /></div>`}
    </div>
  </section>`;
}

function Operator({ operator }) {
  const { state } = operator;
  return html`<div class="pane"><header class="bar sub"><h2><bdi>${operator.name}</bdi></h2>
      ${state?.shuttingDown ? html`<${Pill} tone="warning">shutting down<//>` : null}</header>
    <${Problem}>${operator.error && `${operator.address}: ${operator.error}`}<//>
    <dl class="facts"><dt>Address</dt><dd class="mono"><bdi>${operator.address}</bdi></dd>
      <dt>Instance</dt><dd><bdi>${state?.instance ?? '–'}</bdi></dd><dt>Version</dt><dd><bdi>${state?.version ?? '–'}</bdi> <span class="faint">Flyball <bdi>${state?.flyball ?? '–'}</bdi></span></dd>
      <dt>Started</dt><dd>${state?.started ? `${age(since(state.started))} ago` : '–'}</dd>
      <dt>Answered</dt><dd>${operator.answered ? `${age(since(operator.answered))} ago` : 'never'}</dd></dl>
    ${state?.stores ? html`<${Stores} stores=${state.stores} />` : null}</div>`;
}
