// Single faults of the view of explorations: a site, a fault, and the schedule of both.

import { html } from 'htm/preact';
import { useMemo, useState } from 'preact/hooks';
import { List } from './list.js';
import { count } from './text.js';

const kept = { text: '', site: '', fault: '', schedule: '' };

/** The meaning of faults, in the words of the catalogue. */
const MEANINGS = {
  error: 'the request fails with this status', throttle: '429 with Retry-After', 'lose-response': 'processed, but the response is lost', reset: 'the connection is closed before',
  delay: 'the request is late by these seconds', 'delay-response': 'the response is late by these seconds', expire: '410', 'too-large-version': '504, too large resource version',
  conflict: 'another writer was first', deny: 'rejected by a policy', truncate: 'half of the list is missing', slow: 'the list takes these seconds',
  'crash-before': 'SIGKILL before the write', 'crash-after': 'SIGKILL after the write', 'crash-loop': 'this number of crashes, each at the next write', terminate: 'SIGTERM, and a new start',
  hold: 'no events for these seconds', coalesce: 'intermediate states are not observed', duplicate: 'the event arrives twice', cut: 'the watch ends before', gone: '410 instead of the event',
  silence: 'open, but without events', corrupt: 'the event is no JSON', 'drop-bookmarks': 'no bookmarks from here on', restart: 'a crash and a new start',
  absent: 'not running for these seconds', partition: 'no API server for these seconds', 'partition-watches': 'requests succeed, watches deliver nothing', 'restart-server': 'all connections close, then 429',
  revoke: 'roles are revoked for these seconds', 'block-lease': 'the lease cannot be renewed', 'delete-lease': 'the lease is deleted', 'delete-primary': 'the custom resource is deleted',
  flip: 'a field changes, and changes back', 'delete-target': 'another user deletes the object', 'edit-target': 'another user edits the object', orphan: 'owner references are removed',
  stick: 'another controller adds a finalizer', annotate: 'another controller keeps an annotation', preexist: 'the object exists before', 'recreate-definition': 'the CRD is deleted and created',
  'delete-namespace': 'the namespace is deleted', 'silence-webhooks': 'webhooks do not respond',
};

export function Faults({ answer, sample, run }) {
  const [, render] = useState(0);
  const set = (change) => { Object.assign(kept, change); render((number) => number + 1); };
  const { sites: listed, running } = answer;
  const sites = useMemo(() => (listed?.sites ?? []).filter((one) => kept.text.split(/\s+/).every((word) => one.site.toLowerCase().includes(word))), [listed, kept.text]);
  const busy = !!running;
  const list = () => run({ action: 'listSites', sample });
  if (!listed) {
    return html`<div class="pane"><div class="hint"><p><b>Choose where a fault happens.</b> A run of the samples without faults lists the sites: each request of the operator, each event of a watch, and each step of the user.</p></div>
      <p><button class="button primary" disabled=${busy || !answer.program} onClick=${list}>List the sites</button></p></div>`;
  }
  const site = sites.find((one) => one.site === kept.site) ?? sites[0];
  const faults = site?.faults ?? [];
  const fault = faults.includes(kept.fault) ? kept.fault : faults[0];
  const schedule = (at, what) => (at && what ? `${listed.schedule}; ${at} ${what}` : '');
  const line = kept.schedule || schedule(site?.site, fault);
  return html`<div class="faults">
    <div class="faults-head"><input type="search" class="search" data-search aria-label="Filter sites" placeholder="Filter sites, such as patch or deployments" value=${kept.text}
        onInput=${(event) => set({ text: event.currentTarget.value.trim().toLowerCase(), schedule: '' })} />
      <span class="faint">${count(sites.length, 'site')}${listed.omitted ? `, ${listed.omitted} beyond the limit` : ''} of <bdi>${listed.sample || 'all samples'}</bdi></span>
      <button class="button" disabled=${busy} onClick=${list}>List again</button></div>
    <div class="split even">
      <${List} label="Sites, in the order of the run" items=${sites} keyOf=${(one) => one.site} height=${28} selected=${site?.site} onSelect=${(id) => set({ site: id, schedule: '' })}
        onOpen=${() => document.querySelector('.faults .split .list:last-child')?.focus()} row=${(one) => html`<div class="site"><bdi class="mono ellipsis">${one.site}</bdi></div>`} empty="No site matches the filter." />
      <${List} label="Faults for the site" items=${faults} keyOf=${(one) => one} height=${28} selected=${fault} onSelect=${(id) => set({ fault: id, schedule: '' })}
        onOpen=${() => document.querySelector('.faults-line input')?.focus()}
        row=${(one) => html`<div class="site"><bdi class="mono">${one}</bdi><span class="faint ellipsis">${MEANINGS[one.replace(/=.*/, '')] ?? ''}</span></div>`} empty="Select a site." />
    </div>
    <form class="faults-line" onSubmit=${(event) => { event.preventDefault(); if (line && !busy) run({ action: 'replay', sample: listed.sample, schedule: line }); }}>
      <label for="schedule">Schedule</label><input id="schedule" class="mono" spellcheck="false" autocomplete="off" value=${line} onInput=${(event) => set({ schedule: event.currentTarget.value })} />
      <button class="button primary" disabled=${busy || !line}>Inject</button></form>
  </div>`;
}
