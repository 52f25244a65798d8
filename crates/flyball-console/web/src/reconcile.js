// The details of one reconcile: causes, reads, writes with their fields, outcome and what comes next.

import { html } from 'htm/preact';
import { ObjectName, Pill } from './parts.js';
import { goToObject } from './route.js';
import { clock, count, duration } from './text.js';

const CAUSES = {
  start: 'first list after the start of the operator',
  relist: 'list after an interruption of a watch',
  unmappedChange: 'a mapping function failed, so all objects are reconciled',
  requeueAfter: 'the delay that the last reconcile requested is over',
  backoff: 'retry after a failure',
  memory: 'waited for the memory budget',
};

export const outcomeTone = (outcome) =>
  ({ error: 'bad', terminal: 'bad', panic: 'bad', deadline: 'bad', wait: 'warning', memory: 'warning', paused: 'warning' })[outcome] ?? 'good';

const Version = ({ before, after }) => html`<span class="version">${before ? `v${before} → ` : ''}${after ? `v${after}` : before ? 'deleted' : ''}</span>`;

const Link = ({ object, plain }) => (plain ? html`<${ObjectName} object=${object} />` : html`<button class="link" onClick=${() => goToObject(object)}><${ObjectName} object=${object} /></button>`);

/** A cause in words; plain text within rows of lists, which are links themselves. */
export function Cause({ cause, plain }) {
  if (cause.type === 'change') {
    return html`<${Link} object=${cause.object} plain=${plain} /> changed <${Version} before=${cause.before} after=${cause.after} />`;
  }
  if (cause.type === 'source') return html`source <bdi>${cause.name}</bdi>`;
  return CAUSES[cause.type] ?? html`<bdi>${String(cause.type)}</bdi>`;
}

const Omitted = ({ number, noun }) => (number ? html`<li class="faint">and ${count(number, noun)} more</li>` : null);

/** The calls of a reconcile to systems outside of the cluster. */
function External({ calls }) {
  if (!calls?.length) return null;
  return html`<h4>External calls</h4>
    <ul class="plain">${calls.map((of) => html`<li><bdi>${of.system}</bdi> <bdi>${count(of.calls, 'call')}</bdi>
      ${of.failures ? html` <span class="bad"><bdi>${of.failures}</bdi> failed</span>` : null} <span class="faint">in ${duration(of.took)}</span></li>`)}</ul>`;
}

function Fields({ write }) {
  if (!write.fields?.length) return null;
  return html`<ul class="fields">${write.fields.map((field) => html`<li><bdi>${field}</bdi></li>`)}
    <${Omitted} number=${write.fieldsOmitted} noun="field" /></ul>`;
}

export const next = (plan, at) => {
  if (!plan) return '–';
  if (plan.type === 'change') return 'at the next change';
  const when = plan.at ? ` at ${clock(plan.at)}` : '';
  if (plan.type === 'requeueAfter') return `after ${duration(plan.seconds)}${when}`;
  return plan.type === 'backoff' ? `retry${when}` : String(plan.type);
};

export function Reconcile({ reconcile, operator }) {
  const r = reconcile;
  const causes = r.causes ?? [];
  const reads = r.reads ?? [];
  const writes = r.writes ?? [];
  return html`<div class="reconcile">
    <h3><${Pill} tone=${outcomeTone(r.outcome)}>${r.outcome}<//> <bdi>${r.controller}</bdi>
      ${operator && operator !== r.controller ? html`<span class="faint"> of <bdi>${operator}</bdi></span>` : null}</h3>
    <div class="notes">${r.error ? html`<p class="error"><bdi>${r.error}</bdi></p>` : null}
    ${(r.flaps ?? []).map((flap) => html`<p class="error">Flapping: <bdi>${flap.field}</bdi> of <${Link} object=${flap.object} />,
      written in turn by <bdi>${(flap.managers ?? []).join(', ')}</bdi></p>`)}</div>
    <dl class="facts">
      <dt>Object</dt><dd><${Link} object=${r.object} /> ${r.resourceVersion ? html`<span class="version">v${r.resourceVersion}</span>` : null}</dd>
      <dt>Began</dt><dd>${clock(r.began)} <span class="faint">waited ${duration(r.waited)}, took ${duration(r.took)}</span></dd>
      <dt>Next</dt><dd>${next(r.next)}${r.failures ? html` <span class="bad">${count(r.failures, 'failure')} in a row</span>` : null}</dd>
      <dt>ID</dt><dd class="mono"><bdi>${r.id}</bdi></dd>
    </dl>
    <div class="causes-part"><h4>Causes</h4>
    <ul class="plain">${causes.map((cause) => html`<li><${Cause} cause=${cause} /></li>`)}
      <${Omitted} number=${r.causesOmitted} noun="cause" />${causes.length ? null : html`<li class="faint">none recorded</li>`}</ul></div>
    <div class="writes"><h4>Writes</h4>
    <ul class="plain">${writes.map((write) => html`<li>
        <span class="verb">${write.verb}${write.subresource ? ` ${write.subresource}` : ''}</span> <${Link} object=${write.object} />
        ${write.result === 'changed' ? html`<${Version} before=${write.before} after=${write.after} />` : html`<span class="faint">${write.result}</span>`}
        <${Fields} write=${write} /></li>`)}
      <${Omitted} number=${r.writesOmitted} noun="write" />
      ${writes.length ? null : html`<li class="faint">none${r.skipped ? `; ${count(r.skipped, 'unchanged object')} not sent` : ''}</li>`}
      ${writes.length && r.skipped ? html`<li class="faint">${count(r.skipped, 'unchanged object')} not sent</li>` : null}</ul></div>
    <div class="reads"><h4>Reads</h4>
    <ul class="plain">${reads.map((read) => html`<li>${read.list
        ? html`<span class="kind">list of ${read.list.kind}</span> <bdi>${read.list.namespace ?? 'all namespaces'}</bdi> <span class="faint">${count(read.objects ?? 0, 'object')}</span>`
        : html`<${Link} object=${read.object} /> ${read.resourceVersion ? html`<span class="version">v${read.resourceVersion}</span>` : html`<span class="faint">does not exist</span>`}`}</li>`)}
      <${Omitted} number=${r.readsOmitted} noun="read" />
      ${reads.length ? null : html`<li class="faint">${r.fromServer ? 'the object, past the cache' : 'none besides the object'}</li>`}</ul>
    <${External} calls=${r.externalCalls} /></div>
  </div>`;
}
