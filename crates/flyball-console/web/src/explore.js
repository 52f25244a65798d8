// View 7, of `flyball dev` only: explorations of faults with the samples of the project, single faults, and forks.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { Faults } from './faults.js';
import { Forks } from './forks.js';
import { explore, live, since } from './live.js';
import { List } from './list.js';
import { Copy, Pill, Problem, Table, Tabs, Tile } from './parts.js';
import { useAnswer, useLive, useSeconds } from './react.js';
import { age, count, duration } from './text.js';

const kept = { tab: 'results', sample: '', seconds: 60, selected: '' };

const DURATIONS = [[30, '30 s'], [60, '1 min'], [300, '5 min'], [900, '15 min']];
const TASKS = { search: 'Search', listSites: 'Run without faults', replay: 'Replay' };

/** The lines of a run; faults and the violated object are marked. */
export function Timeline({ lines, label, tall }) {
  let isOutput = false;
  const tone = (line) => {
    if (line.trimStart().startsWith('output of the operator')) isOutput = true;
    if (isOutput) return 'faint';
    return line.includes('✱') ? 'fault' : line.includes('✗') ? 'bad' : '';
  };
  return html`<div class=${`run-lines ${tall ? "tall" : ""}`} tabIndex="0" role="region" aria-label=${label}>${lines.map((line) => html`<div class=${tone(line)}><bdi>${line.replace(/^ {2}/, '')}</bdi></div>`)}</div>`;
}

/** A message of a run, with its time in seconds instead of microseconds. */
const timed = (line) => line.replace(/^(\d+) /, (_, micros) => `${(micros / 1e6).toFixed(3).padStart(8)}  `);

function Finding({ finding, sample, run, busy }) {
  const [seen, runs] = finding.rate ?? [];
  return html`<article class="finding">
    <header><${Pill} tone="bad">${finding.oracle}<//> <b><bdi>${finding.object}</bdi></b> ${finding.field ? html`<bdi class="mono faint">${finding.field}</bdi>` : null}
      <span class="grow"></span>${runs ? html`<span class="faint">in ${seen} of ${count(runs, 'run')}</span>` : null}</header>
    <p><bdi>${finding.text}</bdi></p>
    <p class="faint">Rule: ${finding.rule}</p>
    <h4>Schedule</h4>
    <div class="line"><code><bdi>${finding.schedule}</bdi></code><${Copy} text=${finding.schedule} label="Copy the schedule" />
      ${live.status?.write ? html`<button class="button small" disabled=${busy} onClick=${() => run({ action: 'replay', sample, schedule: finding.schedule })}>Replay</button>` : null}</div>
    <h4>In a terminal</h4>
    <div class="line"><code><bdi>${finding.command}</bdi></code><${Copy} text=${finding.command} label="Copy the command" /></div>
    <h4>Run</h4>
    <${Timeline} lines=${finding.timeline} label=${`Run that violates ${finding.oracle}`} />
  </article>`;
}

function verdict(one) {
  if (one.error) return ['cannot explore', 'bad', '▲'];
  if (one.findings.length) return [count(one.findings.length, 'finding'), 'bad', '▲'];
  return [one.task === 'listSites' ? 'listed' : one.isStopped ? 'stopped' : 'no finding', one.isStopped ? '' : 'good', one.isStopped ? '◌' : '●'];
}

function Result({ one, run, busy }) {
  const sample = one.sample || 'all samples';
  const coverage = one.coverage.map(([fault, sites]) => ({ cells: [html`<span class="mono">${fault}</span>`, sites.toLocaleString('en')] }));
  const summary = one.task === 'search' ? `${count(one.schedules, 'schedule')} in ${count(one.runs, 'run')}, ${duration(one.seconds)}` : `${count(one.runs, 'run')}, ${duration(one.seconds)}`;
  return html`<div class="pane" tabIndex="0" role="region" aria-label="Result">
    <header class="bar sub"><h2>${TASKS[one.task]}</h2><span class="faint"><bdi>${sample}</bdi> · ${summary}${one.isStopped ? ', stopped' : ''} · ${age(since(one.ended))} ago</span></header>
    ${one.task === 'replay' ? html`<div class="line"><code><bdi>${one.schedule}</bdi></code></div>` : null}
    ${one.error ? html`<p class="error"><bdi>${one.error}</bdi></p>` : null}
    ${one.findings.map((finding) => html`<${Finding} finding=${finding} sample=${one.sample} run=${run} busy=${busy} />`)}
    ${!one.error && !one.findings.length ? html`<p>${one.task === 'search' ? 'No violation of a rule was found.' : one.task === 'replay' ? 'All rules hold with this schedule.' : 'The operator converged. Its sites are listed under Single faults.'}</p>` : null}
    ${one.warnings.length ? html`<div><h3>Remarks</h3><ul class="plain">${one.warnings.map((text) => html`<li class="warning"><bdi>${text}</bdi></li>`)}</ul></div>` : null}
    ${coverage.length ? html`<div class="coverage"><h3>Faults that occurred</h3><${Table} label="Faults" columns=${[{ label: 'Fault' }, { label: 'Sites', class: 'number' }]} rows=${coverage} /></div>` : null}
    ${one.trace.length ? html`<div><h3>Messages</h3><${Timeline} tall lines=${one.trace.map(timed)} label="Messages of the run" />
      ${one.traceOmitted ? html`<p class="faint">and ${count(one.traceOmitted, 'message')} more</p>` : null}</div>` : null}
  </div>`;
}

function Progress({ running }) {
  const part = running.budget ? Math.min(1, running.seconds / running.budget) : null;
  return html`<div class="exploring" role="status">
    <div class="tiles">
      <${Tile} label=${running.isStopping ? 'Stopping after the runs that have begun' : TASKS[running.task]} value=${running.phase} tone="words" />
      <${Tile} label="Time" value=${duration(Math.round(running.seconds))} />
      <${Tile} label="Schedules" value=${running.schedules.toLocaleString('en')} />
      <${Tile} label="Fault sites" value=${running.sites.toLocaleString('en')} />
      <${Tile} label="Violations" value=${running.violations.length} tone=${running.violations.length ? 'bad' : ''} />
    </div>
    ${part == null ? null : html`<div class="progress" role="progressbar" aria-label="Time of the search" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${Math.round(part * 100)}><span style=${{ width: `${part * 100}%` }}></span></div>`}
    ${running.violations.map((text) => html`<p class="error"><bdi>${text}</bdi></p>`)}
  </div>`;
}

const ReadOnly = () => html`<div class="hint"><p><b>This console only reads.</b> Explorations run the operator as a process on this machine, on simulated control planes:</p>
  <pre tabIndex="0">flyball dev --console --write</pre></div>`;

const Intro = ({ write }) => html`<div class="pane"><div class="hint">
  <p><b>Nothing is explored yet.</b> A search applies and deletes the samples again and again, each time with other faults: crashes, lost responses, late and stale caches, changes by others. It reports each violated rule with the smallest schedule of faults that shows it.</p>
  <p>The operator runs on simulated control planes. Objects of this cluster do not change.</p></div>${write ? null : html`<${ReadOnly} />`}</div>`;

export function Explore() {
  useLive(1000);
  useSeconds();
  const [, render] = useState(0);
  const [problem, setProblem] = useState('');
  const { value: answer, error } = useAnswer('/api/exploration', 700);
  const set = (change) => { Object.assign(kept, change); render((number) => number + 1); };
  const write = live.status?.write;
  const run = async (request) => {
    try { await explore(request); setProblem(''); set(['search', 'replay'].includes(request.action) ? { tab: 'results', selected: '' } : {}); } catch (failed) { setProblem(failed.message); }
  };
  const finished = answer?.finished ?? [];
  const running = answer?.running;
  const chosen = finished.find((one) => `${one.number}` === kept.selected) ?? finished[0];
  const samples = answer?.samples ?? [];
  const sample = samples.includes(kept.sample) ? kept.sample : '';
  const row = (one) => {
    const [text, tone, glyph] = verdict(one);
    return html`<div class="burst"><div><span>${TASKS[one.task]}</span><span class="faint">${age(since(one.ended))}</span></div>
      <div class="ellipsis faint"><span class=${tone}><span aria-hidden="true">${glyph} </span>${text}</span> · <bdi>${one.sample || 'all samples'}</bdi></div></div>`;
  };
  return html`<section class="view explore" aria-label="Explore">
    <header class="bar"><h1>Explore</h1><${Tabs} label="Part" value=${kept.tab} onChange=${(tab) => set({ tab })} tabs=${[{ id: 'results', label: 'Results', count: finished.length }, { id: 'faults', label: 'Single faults' }, ...(answer?.forks ? [{ id: 'forks', label: 'Forks', count: answer.forks.length }] : [])]} />
      <bdi class="faint ellipsis">${answer ? answer.program || 'the operator is not built yet' : ''}</bdi><span class="grow"></span>
      <select aria-label="Samples" value=${sample} disabled=${!write || !!running} onChange=${(event) => set({ sample: event.currentTarget.value })}><option value="">All samples</option>
        ${samples.map((name) => html`<option value=${name}>${name}</option>`)}</select>
      <select aria-label="Duration" value=${kept.seconds} disabled=${!write || !!running} onChange=${(event) => set({ seconds: Number(event.currentTarget.value) })}>
        ${DURATIONS.map(([seconds, label]) => html`<option value=${seconds}>${label}</option>`)}</select>
      ${running ? html`<button class="button" disabled=${!write || running.isStopping} onClick=${() => run({ action: 'stop' })}>Stop</button>`
        : html`<button class="button primary" disabled=${!write || !answer?.program} onClick=${() => run({ action: 'search', sample, seconds: kept.seconds })}>Search</button>`}</header>
    <${Problem}>${problem || error}<//>
    ${running ? html`<${Progress} running=${running} />` : null}
    ${!answer ? html`<div class="empty">${error ? '' : 'Reading…'}</div>`
      : kept.tab === 'faults' ? (write ? html`<${Faults} answer=${answer} sample=${sample} run=${run} />` : html`<div class="pane"><${ReadOnly} /></div>`)
        : kept.tab === 'forks' && answer.forks ? html`<${Forks} forks=${answer.forks} run=${run} />`
          : !chosen ? html`<${Intro} write=${write} />` : html`<div class="master wide">
          <${List} autofocus label="Explorations, newest first" items=${finished} keyOf=${(one) => `${one.number}`} height=${54} selected=${`${chosen.number}`} onSelect=${(selected) => set({ selected })}
            onOpen=${() => document.querySelector('.explore .pane')?.focus()} row=${row} />
          <${Result} key=${chosen.number} one=${chosen} run=${run} busy=${!!running} /></div>`}
  </section>`;
}
