// View 2: the timeline of one object.

import { html } from 'htm/preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { act, live, now, since } from './live.js';
import { LANES, Lanes } from './lanes.js';
import { List } from './list.js';
import { Health, ObjectName, Pill, Problem, Tabs } from './parts.js';
import { useAnswer, useLive, useSeconds } from './react.js';
import { Cause, Reconcile } from './reconcile.js';
import { address, go, goToObject } from './route.js';
import { age, clean, clock, count, duration } from './text.js';

const RANGES = [
  { id: '60', label: '1 min' }, { id: '900', label: '15 min' }, { id: '7200', label: '2 h' }, { id: 'all', label: 'All' },
];

/** The path of the answer for the parts of the address. With its name, a deleted object is found as well. */
function pathOf(view, rest, known) {
  const [group, kind, namespace, name] = view === 'object'
    ? [known?.group, known?.kind, known?.namespace, known?.name] : rest;
  const parts = { id: view === 'object' ? rest[0] : '', group, kind, namespace, name };
  return `/api/object?${new URLSearchParams(Object.entries(parts).filter(([, part]) => part))}`;
}

const STATES = {
  ready: 'waits for a worker', running: 'running', delayed: 'waits for its next reconcile',
  backoff: 'backoff after a failure', throttled: 'throttled: the rate of retries is limited',
  held: 'held until the cache shows its own write',
};

/** The reason why a key waits, in words. */
export function Waiting({ entry, plain }) {
  const { key } = entry;
  if (entry.active === false) return html`controller inactive: waits for <bdi>${(entry.waitsFor ?? []).join(', ') || 'its start'}</bdi>`;
  if (!key) return html`idle: the next change causes a reconcile`;
  const left = key.until ? `, ${duration(Math.max(0, -since(key.until)))} left` : key.since ? ` for ${duration(Math.max(0, since(key.since)))}` : '';
  return html`<span class=${key.state === 'backoff' || key.state === 'throttled' ? 'bad' : ''}>${STATES[key.state] ?? key.state}${left}${key.failures ? `; ${count(key.failures, 'failure')} in a row` : ''}</span>
    ${key.again ? html`<span class="faint">; triggered again</span>` : null}
    ${(key.causes ?? []).slice(0, 1).map((cause) => html`<span class="faint"> · cause: </span><${Cause} cause=${cause} plain=${plain} />`)}`;
}

function Actions({ summary, onDone }) {
  const [confirm, setConfirm] = useState(false);
  const [result, setResult] = useState('');
  if (!live.status?.write || !summary) return null;
  const run = async (action, done) => {
    try { await act(action, summary.id); setResult(done); } catch (error) { setResult(error.message); }
    setConfirm(false);
    onDone?.();
  };
  return html`<div class="actions">
    <span role="status" class="faint">${result}</span>
    ${confirm ? html`<span role="alertdialog" aria-label="Confirm the deletion">Delete <b><bdi>${summary.name}</bdi></b> and what it owns?
        <button class="button danger" autofocus onClick=${() => run('delete', 'deletion requested')}>Delete</button>
        <button class="button" onClick=${() => setConfirm(false)}>Keep</button></span>`
      : html`<button class="button" onClick=${() => run('reconcile', 'reconcile requested')}>Reconcile now</button>
        ${summary.paused
          ? html`<button class="button" onClick=${() => run('resume', 'resumed')}>Resume</button>`
          : html`<button class="button" onClick=${() => run('pause', 'paused')}>Pause</button>`}
        <button class="button" onClick=${() => setConfirm(true)}>Delete…</button>`}
  </div>`;
}

function Entry({ entry, namespace }) {
  const lane = LANES.find(([id]) => id === entry.lane)?.[1] ?? '';
  return html`<div class="entry">
    <span class="time">${clock(entry.time)}</span>
    <span class="lane-name">${lane}</span>
    <span class=${`title ${entry.tone}`}><bdi>${entry.title}</bdi>${entry.object ? html` <${ObjectName} object=${entry.object} namespace=${namespace} />` : null}</span>
    <bdi class="by">${entry.by}</bdi>
    <span class="took">${entry.took == null ? '' : duration(entry.took)}</span>
  </div>`;
}

const SOURCES = {
  observed: 'observed by this console', ledger: 'ledger of the operator', claim: 'claim of an operator that was merely found', managedFields: 'managed fields: the last write of this manager',
  metadata: 'metadata', conditions: 'condition of the object', events: 'event',
};

function Details({ entry, answer }) {
  if (!entry) return html`<div class="empty">Select an entry: arrow keys, or a click.</div>`;
  const known = entry.reconcile && answer.reconciles[`${entry.operator}/${entry.reconcile}`];
  const versions = entry.version ? html`<dt>Version</dt><dd class="version">v${entry.version}</dd>` : null;
  return html`<div class="details" tabIndex="0" role="region" aria-label="Details of the entry">
    ${entry.lane === 'reconciles' && known ? null : html`<h3><bdi>${entry.title}</bdi> ${entry.object ? html`<button class="link" onClick=${() => goToObject(entry.object)}><${ObjectName} object=${entry.object} /></button>` : null}</h3>
      ${entry.detail ? html`<p><bdi>${entry.detail}</bdi></p>` : null}
      <dl class="facts"><dt>Time</dt><dd>${clock(entry.time)} <span class="faint">${age(since(entry.time))} ago</span></dd>
        ${entry.by ? html`<dt>By</dt><dd><bdi>${entry.by}</bdi></dd>` : null}${versions}
        <dt>Source</dt><dd class="faint">${SOURCES[entry.source] ?? entry.source}</dd></dl>
      ${entry.fields?.length ? html`<h4>Fields</h4><ul class="fields">${entry.fields.map((field) => html`<li><bdi>${field}</bdi></li>`)}
        ${entry.fieldsOmitted ? html`<li class="faint">and ${count(entry.fieldsOmitted, 'field')} more</li>` : null}</ul>` : null}`}
    ${known ? html`<${Reconcile} reconcile=${known.reconcile} operator=${known.operator} />`
      : entry.reconcile ? html`<p class="faint">Reconcile <bdi class="mono">${entry.reconcile}</bdi> is not in a ledger that this console reads.</p>` : null}
  </div>`;
}

function Body({ answer }) {
  const text = useMemo(() => {
    const body = structuredClone(answer.body ?? {});
    if (body.metadata) delete body.metadata.managedFields;
    return clean(JSON.stringify(body, null, 2));
  }, [answer.body]);
  return html`<pre class="body" tabIndex="0" role="region" aria-label="The object as JSON">${answer.error || text}</pre>`;
}

function Children({ answer }) {
  const [selected, select] = useState('');
  return html`<${List} label="Children" items=${answer.children} keyOf=${(child) => child.summary.id} height=${30} selected=${selected}
    onSelect=${select} onOpen=${(child) => go('object', child.summary.id)} empty="It controls no objects."
    row=${({ object, summary }) => html`<div class="child"><${ObjectName} object=${object} /><${Health} health=${summary.health} state=${summary.state} /></div>`} />`;
}

/** What the operators know about the object: why they act on it, or do not. */
function Operators({ answer }) {
  return html`<div class="details" tabIndex="0" role="region" aria-label="Operators">${answer.explanations.map((operator) => html`
    <h3><bdi>${operator.operator}</bdi> <span class="faint"><bdi>${operator.instance}</bdi></span></h3>
    ${operator.controllers?.length || operator.stores?.length ? null : html`<p class="faint">It does not watch this kind.</p>`}
    ${operator.leading === false ? html`<p class="error">It is not the leader, so it writes nothing.</p>` : null}
    ${(operator.controllers ?? []).map((controller) => html`<dl class="facts">
      <dt>Controller</dt><dd><b><bdi>${controller.name}</bdi></b> <${Waiting} entry=${{ ...controller, controller: controller.name }} /></dd>
      <dt>Cache</dt><dd>${controller.cached ? html`has v<bdi>${controller.resourceVersion}</bdi>${controller.resourceVersion && answer.summary && controller.resourceVersion !== answer.summary.version ? html`<span class="warning">, the object is v${answer.summary.version}</span>` : null}`
        : html`<span class="warning">does not have the object</span>`}${controller.paused ? html`<span class="warning">; paused by an annotation</span>` : null}</dd>
      ${controller.filtered?.length ? html`<dt>Filtered</dt><dd>${controller.filtered.map((change) => html`<div><${ObjectName} object=${change.object} />
        <span class="version">v${change.before ?? '–'} → v${change.after ?? '–'}</span> <span class="faint">${clock(change.at)}: a filter of the author dropped this change</span></div>`)}</dd>` : null}
      ${controller.last ? html`<dt>Last</dt><dd>${clock(controller.last.began)} <bdi>${controller.last.outcome}</bdi></dd>` : null}</dl>`)}
    ${(operator.stores ?? []).map((store) => html`<dl class="facts"><dt>Store</dt><dd><bdi>${store.kind}</bdi> <bdi>${store.namespace ?? 'in all namespaces'}</bdi>
      ${store.selection ? html` <bdi class="faint">${store.selection}</bdi>` : null}
      ${store.absent ? html`<span class="warning"> the kind is not installed</span>` : store.mayBeSelected === false ? html`<span class="warning"> does not select the object</span>` : store.cached ? '' : html`<span class="warning"> does not have it</span>`}
      ${store.error ? html`<div class="bad"><bdi>${store.error.message}</bdi></div>` : null}</dd></dl>`)}`)}
  </div>`;
}

export function ObjectView({ view, rest }) {
  useLive(500);
  useSeconds();
  const held = useRef(null);
  const { value, error } = useAnswer(pathOf(view, rest, held.current?.object), 2000);
  // The last answer stays while the next one is loaded.
  if (value) held.current = value;
  const answer = held.current;
  const wanted = view === 'object' ? rest[1] : rest[4];
  const [key, select] = useState('');
  const [range, setRange] = useState('900');
  const [tab, setTab] = useState('details');
  useEffect(() => { select(''); setTab('details'); }, [rest.join('/')]);

  const entries = answer?.entries ?? [];
  const keyOf = (entry) => `${entry.lane} ${entry.time} ${entry.title} ${entry.version ?? ''} ${entry.operator ?? ''}/${entry.reconcile ?? ''} ${entry.by ?? ''}`;
  const isWanted = (entry) => wanted && entry.lane === 'reconciles' && `${entry.operator}/${entry.reconcile}` === wanted;
  const chosen = key ? entries.findIndex((entry) => keyOf(entry) === key) : entries.findIndex(isWanted);
  const time = now();
  const oldest = entries.length ? Date.parse(entries[entries.length - 1].time) : time - 60_000;
  const seconds = range === 'all' ? Math.max(60, (time - oldest) / 1000 * 1.03) : Number(range);
  const span = [time - seconds * 1000, time];

  if (!answer) return html`<section class="view" aria-label="Object"><h1 class="sr">Object</h1>${error ? html`<${Problem}>${error}<//>` : html`<div class="empty">Reading the object…</div>`}</section>`;
  const summary = live.rows.get(answer.id) ?? answer.summary;
  return html`<section class="view object-view" aria-label="Object">
    <nav class="crumbs" aria-label="Owners"><a href=${address('objects')}>Objects</a>
      ${answer.owners.map((owner) => html`<span aria-hidden="true">›</span> <a href=${address('object', owner.summary.id)}><${ObjectName} object=${owner.object} /></a>`)}</nav>
    <header class="bar">
      <h1 class="ellipsis"><span class="kind">${answer.object.kind}</span> <bdi>${answer.object.name}</bdi></h1>
      ${answer.object.namespace ? html`<span class="faint">in <bdi>${answer.object.namespace}</bdi></span>` : null}
      ${summary ? html`<${Health} health=${summary.health} state=${summary.state} />` : html`<${Pill} tone="warning">does not exist<//>`}
      ${summary?.paused ? html`<${Pill} tone="warning">paused<//>` : null}
      ${summary?.created ? html`<span class="faint">${age(since(summary.created))} old</span>` : null}
      <span class="grow"></span>
      <a class="button" href=${address('causes', answer.id)}>Causes</a>
      <${Actions} summary=${summary} />
    </header>
    ${summary?.reason ? html`<p class="lead"><bdi>${summary.reason}</bdi></p>` : null}
    ${answer.controllers.map((entry) => html`<p class="queue-line"><bdi class="mono">${entry.controller}</bdi><${Waiting} entry=${entry} /></p>`)}
    <${Problem}>${error || (answer.eventsError && `Events: ${answer.eventsError}`)}<//>
    <div class="toolbar"><${Tabs} label="Period" tabs=${RANGES} value=${range} onChange=${setRange} />
      <span class="faint">${count(entries.length, 'entry').replace('entrys', 'entries')}${answer.entriesOmitted ? `, ${answer.entriesOmitted} older ones omitted` : ''}</span></div>
    <${Lanes} entries=${entries} selected=${chosen} onSelect=${(at) => { select(keyOf(entries[at])); setTab('details'); }} range=${span} now=${time} />
    <div class="split">
      <${List} autofocus label="Timeline, newest first" items=${entries} keyOf=${keyOf} height=${28} selected=${chosen >= 0 ? keyOf(entries[chosen]) : ''}
        onSelect=${(to) => { select(to); setTab('details'); }}
        onOpen=${(entry) => (entry.object ? goToObject(entry.object) : document.querySelector('.details')?.focus())}
        row=${(entry) => html`<${Entry} entry=${entry} namespace=${answer.object.namespace} />`} empty="Nothing is recorded." />
      <div class="side">
        <${Tabs} label="Details" value=${tab} onChange=${setTab} tabs=${[{ id: 'details', label: 'Details' },
          { id: 'children', label: 'Children', count: answer.children.length },
          ...(answer.explanations.length ? [{ id: 'operators', label: 'Operators', count: answer.explanations.length }] : []), { id: 'body', label: 'Object' }]} />
        ${tab === 'details' ? html`<${Details} entry=${entries[chosen]} answer=${answer} />`
          : tab === 'operators' ? html`<${Operators} answer=${answer} />`
          : tab === 'children' ? html`<${Children} answer=${answer} />` : html`<${Body} answer=${answer} />`}
      </div>
    </div>
  </section>`;
}
