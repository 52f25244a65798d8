// View 4: the performance of operators: API calls, reconcile time and memory, by operator and kind.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { Chart } from './chart.js';
import { Hint } from './hint.js';
import { since } from './live.js';
import { List } from './list.js';
import { ObjectName, Problem, Table } from './parts.js';
import { useAnswer, useSeconds } from './react.js';
import { goToObject } from './route.js';
import { age, bytes, clock, count, duration } from './text.js';

const kept = { selected: '' };

const memory = (amounts) => amounts.cacheBytes + amounts.ledgerBytes;
const each = (total, number) => (number ? total / number : null);
const time = (microseconds) => (microseconds == null ? '–' : duration(microseconds / 1e6));
const whole = (number) => number.toLocaleString('en');

/** A value with a bar for its share of the total. */
function Share({ value, total, children }) {
  const part = total > 0 ? Math.min(1, value / total) : 0;
  return html`<span class="share"><span class="share-bar" aria-hidden="true"><span style=${{ width: `${(part * 100).toFixed(1)}%` }}></span></span><span class="number">${children}</span></span>`;
}

const Head = () => html`<div class="perf-row head" aria-hidden="true">
  <span>Operator and kind</span><span class="number">API calls</span><span class="number">each</span><span class="number">Reconciles</span><span class="number">Errors</span>
  <span class="number">Reconcile time</span><span class="number">Average</span><span class="number">p99</span>
  <span class="number">External</span><span class="number">Cached</span><span class="number">Memory</span></div>`;

function Row({ item }) {
  const { operator, kind } = item;
  const amounts = kind ? kind.amounts : operator.total;
  const { total } = operator;
  const average = each(amounts.microseconds, amounts.reconciles);
  const calls = each(amounts.apiCalls, amounts.reconciles);
  const idle = kind && !amounts.reconciles;
  const name = kind ? html`<span class="name"><bdi class="label">${kind.kind || 'unknown'}</bdi> <bdi class="faint">${kind.group || 'core'}</bdi></span>`
    : html`<span class="name"><bdi class="label">${operator.name}</bdi>${operator.error ? html` <span class="bad" title=${operator.error}>▲ no answer</span>` : null}</span>`;
  const none = html`<span class="faint">–</span>`;
  return html`<div class=${`perf-row ${kind ? 'of-kind' : 'of-operator'}`}>${name}
    <${Share} value=${amounts.apiCalls} total=${kind ? total.apiCalls : 0}>${idle ? none : whole(amounts.apiCalls)}<//>
    <span class="number">${calls == null ? none : calls.toFixed(calls < 10 ? 1 : 0)}</span>
    <span class="number">${idle ? none : whole(amounts.reconciles)}</span>
    <span class=${`number ${amounts.errors ? 'bad' : ''}`}>${idle ? none : whole(amounts.errors)}</span>
    <${Share} value=${amounts.microseconds} total=${kind ? total.microseconds : 0}>${idle ? none : time(amounts.microseconds)}<//>
    <span class="number">${average == null ? none : time(average)}</span>
    <span class="number">${(kind ?? operator).p99 == null ? none : duration((kind ?? operator).p99)}</span>
    <span class=${`number ${amounts.externalFailures ? 'bad' : ''}`}>${amounts.externalCalls ? whole(amounts.externalCalls) : none}</span>
    <span class="number">${amounts.cachedObjects ? whole(amounts.cachedObjects) : none}</span>
    <${Share} value=${memory(amounts)} total=${kind ? memory(total) : 0}>${bytes(memory(amounts))}<//></div>`;
}

/** Adds up the columns of charts over kinds. */
function columns(kinds) {
  const sum = (of) => kinds.reduce((sums, kind) => sums.map((value, at) => value + kind[of][at]), kinds[0]?.[of].map(() => 0) ?? []);
  return { calls: sum('calls'), time: sum('time').map((value) => value / 1e6) };
}

function Details({ item, theme }) {
  const { operator, kind } = item;
  const kinds = kind ? [kind] : operator.kinds;
  const { calls, time: seconds } = columns(kinds);
  const times = calls.map((_, at) => operator.start + at * operator.step);
  const amounts = kind ? kind.amounts : operator.total;
  const targets = kinds.flatMap((one) => one.targets).reduce((map, target) => {
    const key = `${target.verb} ${target.group} ${target.kind}`;
    map.set(key, { ...target, calls: target.calls + (map.get(key)?.calls ?? 0) });
    return map;
  }, new Map());
  const omitted = kinds.reduce((sum, one) => sum + one.callsOmitted, 0);
  const objects = kinds.flatMap((one) => one.objects).sort((a, b) => b.amounts.microseconds - a.amounts.microseconds).slice(0, 12);
  const callRows = [...targets.values()].sort((a, b) => b.calls - a.calls).map((target) => ({ cells: [html`<bdi>${target.verb}</bdi>`,
    target.kind ? html`<bdi>${target.kind}</bdi> <bdi class="faint">${target.group || 'core'}</bdi>` : html`<span class="faint">beyond the record of a reconcile</span>`, whole(target.calls)] }));
  if (omitted) callRows.push({ cells: ['others', '', whole(omitted)] });
  const objectRows = objects.map((one) => ({ cells: [html`<button class="link" onClick=${() => goToObject(one.object)}><${ObjectName} object=${one.object} /></button>`,
    whole(one.amounts.reconciles), whole(one.amounts.apiCalls), time(one.amounts.microseconds), time(each(one.amounts.microseconds, one.amounts.reconciles))] }));
  const systems = kinds.flatMap((one) => one.systems).reduce((map, of) => {
    const known = map.get(of.system) ?? { calls: 0, failures: 0, microseconds: 0 };
    map.set(of.system, { calls: known.calls + of.calls, failures: known.failures + of.failures, microseconds: known.microseconds + of.microseconds });
    return map;
  }, new Map());
  const others = kinds.reduce((sum, one) => sum + one.externalCallsOmitted, 0);
  const systemRows = [...systems].sort(([, a], [, b]) => b.microseconds - a.microseconds).map(([system, of]) => ({ cells: [html`<bdi>${system}</bdi>`,
    whole(of.calls), of.failures ? html`<span class="bad">${whole(of.failures)}</span>` : '0', time(of.microseconds), time(each(of.microseconds, of.calls))] }));
  if (others) systemRows.push({ cells: ['others', whole(others), '', '', ''] });
  const name = kind ? `${kind.kind} of ${operator.name}` : operator.name;
  const summary = `${count(amounts.apiCalls, 'API call')} and ${time(amounts.microseconds)} of reconciles`;
  return html`<div class="perf-details" tabIndex="0" role="region" aria-label=${`Performance of ${name}`}>
    <div class="charts">
      <${Chart} title="API calls per 15 s" times=${times} theme=${theme} height=${112} format=${(value) => (Number.isInteger(value) ? whole(value) : '')} summary=${summary}
        series=${[{ label: 'API calls', values: calls, tone: 'accent', bars: true }]} />
      <${Chart} title="Reconcile time per 15 s" times=${times} theme=${theme} height=${112} format=${duration} summary=${summary}
        series=${[{ label: 'reconcile time', values: seconds, tone: 'accent', bars: true }]} />
    </div>
    <div class="perf-tables">
      <div><h3>API calls by verb and kind</h3><${Table} label=${`API calls of ${name}`} columns=${[{ label: 'Verb' }, { label: 'Kind' }, { label: 'API calls', class: 'number' }]} rows=${callRows}
        empty="No API calls." />
        ${systemRows.length ? html`<h3>External calls by system</h3><${Table} label=${`External calls of ${name}`} columns=${[{ label: 'System' }, { label: 'Calls', class: 'number' },
          { label: 'Failed', class: 'number' }, { label: 'Time', class: 'number' }, { label: 'Average', class: 'number' }]} rows=${systemRows} />` : null}</div>
      <div><h3>Objects by reconcile time</h3><${Table} label=${`Objects of ${name}`} columns=${[{ label: 'Object' }, { label: 'Reconciles', class: 'number' }, { label: 'API calls', class: 'number' },
        { label: 'Time', class: 'number' }, { label: 'Average', class: 'number' }]} rows=${objectRows} empty=${kind && !kind.controllers.length ? 'This kind is only cached.' : 'No reconciles.'} /></div>
    </div>
    <p class="faint">Memory: ${bytes(amounts.cacheBytes)} of ${count(amounts.cachedObjects, 'cached object')}, and ${bytes(amounts.ledgerBytes)} of ledgers.
      API calls are the writes and uncached reads of reconciles, not the watches of caches.</p>
  </div>`;
}

export function Performance({ theme }) {
  useSeconds();
  const [, render] = useState(0);
  const { value: answer, error } = useAnswer('/api/performance', 2000);
  const operators = answer?.operators ?? [];
  const items = operators.flatMap((operator, at) => [{ id: `o${at}`, operator },
    ...operator.kinds.map((kind) => ({ id: `o${at}/${kind.kind}.${kind.group}`, operator, kind }))]);
  const chosen = items.find((item) => item.id === kept.selected) ?? items[0];
  const select = (id) => { kept.selected = id; render((number) => number + 1); };
  const covered = operators.length ? Math.min(...operators.map((operator) => operator.seconds)) : 0;
  return html`<section class="view performance" aria-label="Performance">
    <header class="bar"><h1>Performance</h1><span class="faint">last 15 minutes</span><span class="grow"></span>
      ${chosen && covered < 895 ? html`<span class="faint">complete since ${clock(operators.reduce((a, b) => (a.seconds < b.seconds ? a : b)).since.replace(/\.\d+/, ''))}, ${age(covered)} ago</span>` : null}</header>
    <${Problem}>${error}<//>
    ${operators.filter((operator) => operator.error).map((operator) => html`<${Problem}>${operator.name}: ${operator.error}${operator.answered ? `; the last answer is ${age(since(operator.answered))} old` : ''}<//>`)}
    ${!answer ? html`<div class="empty">${error ? '' : 'Reading…'}</div>` : !operators.length ? html`<div class="scroll"><${Hint} /></div>` : html`<${Head} />
      <${List} autofocus label="Performance by operator and kind" items=${items} keyOf=${(item) => item.id} height=${30} selected=${chosen.id} onSelect=${select}
        onOpen=${() => document.querySelector('.perf-details')?.focus()} row=${(item) => html`<${Row} item=${item} />`} />
      <${Details} key=${chosen.id} item=${chosen} theme=${theme} />`}
  </section>`;
}
