// View 1: objects as an owner tree with live state.

import { html } from 'htm/preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { live, since } from './live.js';
import { List } from './list.js';
import { Health, Tabs } from './parts.js';
import { useLive, useSeconds } from './react.js';
import { go } from './route.js';
import { age, count } from './text.js';
import { build } from './tree.js';

// Filter, selection and collapsed objects stay when another view is shown.
const kept = { filter: { text: '', kind: '', namespace: '', scope: 'state' }, collapsed: new Set(), selected: '' };

const SCOPES = [
  { id: 'state', label: 'With state' }, { id: 'unready', label: 'Unready' }, { id: 'all', label: 'All' },
];

function Line({ line, kinds, until }) {
  const { row } = line;
  const twisty = line.expanded == null ? '' : line.expanded ? '▾' : '▸';
  return html`
    <span class=${`name ${line.isMatch ? '' : 'context'}`} style=${{ paddingLeft: `${line.level * 18}px` }}>
      <span class="twisty" aria-hidden="true">${twisty}</span>
      <span class="kind">${kinds[row.kind]?.kind}</span>
      <bdi class="label">${row.name}</bdi>
      ${row.paused ? html`<span class="pill warning">paused</span>` : null}
    </span>
    <bdi class="namespace">${row.namespace}</bdi>
    <${Health} health=${row.health} state=${row.state} />
    <bdi class="reason" title=${row.reason}>${row.reason}</bdi>
    <span class="age">${row.created ? age(since(row.created, until)) : ''}</span>`;
}

export function Objects() {
  useLive(250);
  useSeconds();
  const [, render] = useState(0);
  const update = () => render((count) => count + 1);
  const search = useRef(null);
  const kinds = live.status?.watches ?? [];
  const { filter, collapsed } = kept;
  const set = (change) => { Object.assign(filter, change); update(); };
  const { lines, found } = useMemo(
    () => build(live.rows, filter, kinds, collapsed),
    [live.version, kinds.length, collapsed.size, ...Object.values(filter)],
  );
  const { namespaces, used, unready } = useMemo(() => {
    const names = new Set();
    const indexes = new Set();
    let waiting = 0;
    for (const row of live.rows.values()) {
      if (row.namespace) names.add(row.namespace);
      indexes.add(row.kind);
      if (row.health === 'failed' || row.health === 'progressing') waiting += 1;
    }
    const used = [...indexes].map((at) => kinds[at]).filter(Boolean).sort((a, b) => (a.kind < b.kind ? -1 : 1));
    return { namespaces: [...names].sort(), used, unready: waiting };
  }, [live.version, kinds.length]);

  const toggle = (line, expand) => {
    if (line.expanded == null || line.expanded === expand) return false;
    if (line.expanded) collapsed.add(line.row.id); else collapsed.delete(line.row.id);
    update();
    return true;
  };
  const keys = (key, line, move) => {
    if (key === 'ArrowRight' || key === 'l') return toggle(line, true) || (move(lines.indexOf(line) + 1), true);
    if (key === 'ArrowLeft' || key === 'h') {
      if (toggle(line, false)) return true;
      const parent = lines.findLastIndex((other, at) => at < lines.indexOf(line) && other.level < line.level);
      if (parent >= 0) move(parent);
      return true;
    }
    if (key === ' ') return toggle(line, !line.expanded);
    return false;
  };
  const leave = (event) => {
    if (event.key !== 'Enter' && event.key !== 'ArrowDown') return;
    // Owners of a match are listed above it; the match itself is selected.
    const match = lines.find((line) => line.isMatch);
    if (match) kept.selected = match.row.id;
    update();
    document.querySelector('.objects .list')?.focus();
    event.preventDefault();
  };
  const problems = kinds.filter((watch) => watch.error);
  // Without a connection to the cluster, ages stop at its loss, and states have no colors.
  const lost = live.status?.disconnected;
  const until = lost && Date.parse(lost);
  return html`<section class=${`view objects ${lost ? 'stale' : ''}`} aria-label="Objects">
    <header class="bar">
      <h1>Objects</h1>
      <input ref=${search} class="search" type="search" placeholder="Filter by name, kind, state or message" data-search
        aria-label="Filter objects" value=${filter.text} onKeyDown=${leave}
        onInput=${(event) => set({ text: event.currentTarget.value.trim().toLowerCase() })} />
      <select aria-label="Kind" value=${filter.kind} onChange=${(event) => set({ kind: event.currentTarget.value })}>
        <option value="">All kinds</option>
        ${used.map((kind) => html`<option value=${`${kind.kind}.${kind.group}`}>${kind.kind}${kind.group ? ` · ${kind.group}` : ''}</option>`)}
      </select>
      <select aria-label="Namespace" value=${filter.namespace}
        onChange=${(event) => set({ namespace: event.currentTarget.value })}>
        <option value="">All namespaces</option>
        ${namespaces.map((name) => html`<option value=${name}>${name}</option>`)}
      </select>
      <${Tabs} label="Scope" value=${filter.scope} onChange=${(scope) => set({ scope })}
        tabs=${SCOPES.map((scope) => (scope.id === 'unready' ? { ...scope, count: unready } : scope))} />
    </header>
    <div class="columns head" aria-hidden="true">
      <span>Name</span><span>Namespace</span><span>State</span><span>Reason</span><span class="age">Age</span>
    </div>
    <${List} tree autofocus label="Objects by owner" items=${lines} keyOf=${(line) => line.row.id} height=${28}
      selected=${kept.selected} onSelect=${(id) => { kept.selected = id; update(); }}
      onOpen=${(line) => go('object', line.row.id)} keys=${keys}
      row=${(line) => html`<div class="columns"><${Line} line=${line} kinds=${kinds} until=${until} /></div>`}
      empty=${live.synced ? 'No object matches the filter.' : 'Reading the cluster…'} />
    <footer class="foot" role="status">
      <span>${count(found, 'object')} of ${live.rows.size.toLocaleString('en')}</span>
      ${problems.length ? html`<span class="bad" title=${problems.map((watch) => `${watch.plural}: ${watch.error}`).join('\n')}>
        ${count(problems.length, 'kind')} cannot be read</span>` : null}
      ${live.status?.omitted ? html`<span class="bad">${count(live.status.omitted, 'object')} beyond the limit</span>` : null}
    </footer>
  </section>`;
}

/** Sets the scope, for the key u. */
export function toggleUnready() {
  kept.filter.scope = kept.filter.scope === 'unready' ? 'state' : 'unready';
}
