// View 5: permissions: those of the user, and those of operators compared with their use.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { live } from './live.js';
import { Pill, Problem, Table, Tabs } from './parts.js';
import { useAnswer, useLive } from './react.js';
import { count } from './text.js';

const list = (values) => (values ?? []).map((value) => (value === '' ? 'core' : value)).join(', ');

function Rules({ user }) {
  const columns = [{ label: 'Verbs' }, { label: 'Resources' }, { label: 'Groups' }, { label: 'Names' }];
  const rows = (user?.resourceRules ?? []).map((rule) => ({ cells: [list(rule.verbs), html`<bdi class="mono">${list(rule.resources)}</bdi>`,
    html`<bdi>${list(rule.apiGroups)}</bdi>`, html`<bdi>${list(rule.resourceNames)}</bdi>`] }));
  const urls = (user?.nonResourceRules ?? []).map((rule) => ({ cells: [list(rule.verbs), html`<bdi class="mono">${list(rule.nonResourceURLs)}</bdi>`, 'URL', ''] }));
  return html`${user?.incomplete ? html`<${Problem}>The list is incomplete: <bdi>${user.evaluationError}</bdi><//>` : null}
    <${Table} label="Your permissions" columns=${columns} rows=${[...rows, ...urls]} empty="No permissions." />`;
}

function Denied({ answer }) {
  const denied = answer.watches.filter((watch) => watch.denied);
  const rows = [...denied.map((watch) => ({ cells: ['this console', html`<bdi>list ${watch.plural}${watch.group ? `.${watch.group}` : ''}</bdi>`, html`<bdi>${watch.error}</bdi>`] })),
    ...answer.denials.map((denial) => ({ cells: [html`<bdi>${answer.operators[denial.operator]?.operator}</bdi>`, html`<bdi>reconcile of ${denial.controller}</bdi>`, html`<bdi>${denial.error}</bdi>`] }))];
  return html`<${Table} label="Denied requests" columns=${[{ label: 'Who' }, { label: 'Request' }, { label: 'Message' }]} rows=${rows} empty="Nothing was denied." />`;
}

function Operator({ operator, problem }) {
  const used = [{ label: 'Verb' }, { label: 'Resource' }, { label: 'Namespace' }, { label: 'Times', class: 'number' }, { label: 'Granted by' }];
  const usedRows = operator.used.map(({ use, count: times, role }) => ({ cells: [use.verb, html`<bdi class="mono">${use.resource}${use.group ? `.${use.group}` : ''}</bdi>`,
    html`<bdi>${use.namespace ?? 'all'}</bdi>`, times, role ? html`<bdi>${role}</bdi>` : operator.account ? html`<span class="warning">no role found</span>` : '–'] }));
  const granted = [{ label: 'Role' }, { label: 'Verbs' }, { label: 'Resources' }, { label: 'Groups' }, { label: 'Finding' }];
  const grantedRows = operator.granted.map((grant) => ({ cells: [html`<bdi>${grant.role}</bdi>${grant.namespace ? html` <bdi class="faint">in ${grant.namespace}</bdi>` : null}`,
    list(grant.rule.verbs), html`<bdi class="mono">${list(grant.rule.resources) || list(grant.rule.nonResourceURLs)}</bdi>`, html`<bdi>${list(grant.rule.apiGroups)}</bdi>`,
    html`${grant.wide ? html`<${Pill} tone="bad">wide<//> ` : null}${!grant.used ? html`<${Pill} tone="warning">not used<//>` : grant.unusedVerbs.length ? html`<span class="faint">not used: ${list(grant.unusedVerbs)}</span>` : ''}`] }));
  return html`<h2><bdi>${operator.operator}</bdi></h2>
    <p class="faint">${operator.account ? html`Runs as service account <bdi>${operator.account}</bdi>.` : 'Its service account is unknown: it does not run as a pod that you may read. Only its use is listed.'}
      ${' '}Used are the caches, and the writes of the ledger; reads past the cache are not part of it.</p>
    <${Problem}>${operator.account && problem ? `Roles: ${problem}` : ''}<//>
    <h3>Used</h3><${Table} label=${`Used permissions of ${operator.operator}`} columns=${used} rows=${usedRows} empty="Nothing yet." />
    ${operator.account ? html`<h3>Granted</h3><${Table} label=${`Granted permissions of ${operator.operator}`} columns=${granted} rows=${grantedRows} empty="No role is bound to it." />` : null}`;
}

export function Permissions() {
  useLive(2000);
  const [namespace, setNamespace] = useState('default');
  const [tab, setTab] = useState('user');
  const { value: answer, error } = useAnswer(`/api/permissions?namespace=${encodeURIComponent(namespace)}`, 10_000);
  const namespaces = [...new Set([namespace, ...[...live.rows.values()].map((row) => row.namespace).filter(Boolean)])].sort();
  const denied = answer ? answer.watches.filter((watch) => watch.denied).length + answer.denials.length : 0;
  const tabs = [{ id: 'user', label: 'You' }, { id: 'denied', label: 'Denied', count: denied },
    ...(answer?.operators ?? []).map((operator, at) => ({ id: `o${at}`, label: operator.operator }))];
  const operator = answer?.operators[Number(tab.slice(1))];
  return html`<section class="view permissions" aria-label="Permissions">
    <header class="bar"><h1>Permissions</h1><${Tabs} label="Whose" tabs=${tabs} value=${tab} onChange=${setTab} /><span class="grow"></span>
      ${tab === 'user' ? html`<label>in namespace <select value=${namespace} onChange=${(event) => setNamespace(event.currentTarget.value)}>
        ${namespaces.map((name) => html`<option value=${name}>${name}</option>`)}</select></label>
        <span class="faint">${count((answer?.user?.resourceRules?.length ?? 0) + (answer?.user?.nonResourceRules?.length ?? 0), 'rule')}</span>` : null}</header>
    <${Problem}>${error || answer?.error}<//>
    <div class="scroll">${!answer ? html`<div class="empty">Reading…</div>` : tab === 'user' ? html`<${Rules} user=${answer.user} />`
      : tab === 'denied' ? html`<${Denied} answer=${answer} />` : operator ? html`<${Operator} operator=${operator} problem=${answer.rolesError} />` : null}</div>
  </section>`;
}
