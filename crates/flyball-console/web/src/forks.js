// Forks of the view of explorations: copies of the control plane in the state of a moment.

import { html } from 'htm/preact';
import { useState } from 'preact/hooks';
import { live, since } from './live.js';
import { Copy, Pill } from './parts.js';
import { age, clock, duration, moment } from './text.js';

const STEPS = [['1s', '+1 s'], ['10s', '+10 s'], ['1m', '+1 min'], ['1h', '+1 h']];

/** The time of a fork, which can be paused and stepped. */
function Time({ fork, run }) {
  const [typed, setTyped] = useState('');
  const isStepping = fork.remaining != null;
  const cannot = !live.status?.write;
  const isResume = fork.isPaused && !isStepping;
  const send = (action, rest) => run({ action, number: fork.number, ...rest });
  const step = (by) => send('stepFork', { duration: by });
  const submit = (event) => { event.preventDefault(); if (typed.trim() && !isStepping && !cannot) step(typed); };
  const state = isStepping ? 'stepping' : fork.isPaused ? 'paused' : 'running';
  return html`<div class="fork-time" role="group" aria-label=${`Time of fork ${fork.number}`}>
    <span>Time <b class="mono">${moment(fork.now)}</b></span> <span role="status"><${Pill} tone=${fork.isPaused ? 'warning' : 'good'}>${state}<//></span>${isStepping ? html`<span class="faint">${duration(fork.remaining)} left</span>` : null}
    <button class="button small" disabled=${cannot} onClick=${() => send(isResume ? 'resumeFork' : 'pauseFork')}>${isResume ? 'Resume' : 'Pause'}</button>
    ${STEPS.map(([by, label]) => html`<button class="button small" title="Advance the time, and pause it" disabled=${cannot || isStepping} onClick=${() => step(by)}>${label}</button>`)}
    <form onSubmit=${submit}><input type="text" aria-label=${`Duration of a step of fork ${fork.number}`} placeholder="1h30m" size="8" maxLength="40" spellcheck="false" autocomplete="off" disabled=${cannot} value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} />
      <button class="button small" disabled=${cannot || isStepping || !typed.trim()}>Step</button></form>
    ${fork.missed == null ? null : html`<span class="warning">the last step took too long and ended ${duration(fork.missed)} early; step again</span>`}
  </div>`;
}

function Fork({ fork, run }) {
  const line = `export KUBECONFIG=${fork.kubeconfig}`;
  return html`<article class="finding">
    <header><b>Fork ${fork.number}</b> <span class="faint">state of ${clock(fork.time.replace(/\.\d+/, ''))}, ${age(since(fork.time))} ago · <span class="mono">${fork.url}</span></span>
      <span class="grow"></span><button class="button small" disabled=${!live.status?.write} onClick=${() => run({ action: 'removeFork', number: fork.number })}>Remove</button></header>
    <${Time} fork=${fork} run=${run} />
    <div class="line"><code><bdi>${line}</bdi></code><${Copy} text=${line} label=${`Copy the line of fork ${fork.number}`} /></div>
  </article>`;
}

export function Forks({ forks, run }) {
  return html`<div class="pane" tabIndex="0" role="region" aria-label="Forks">
    <div class="hint"><p><b>A fork is a copy of this control plane as it is now</b>, with its own controllers and simulated nodes. Try a change on it: this control plane and its operator do not observe it. Its time can be paused and stepped: controllers, nodes and timestamps follow. A program that you run against it has its own clock.</p></div>
    <p><button class="button primary" disabled=${!live.status?.write} onClick=${() => run({ action: 'fork' })}>Fork now</button></p>
    ${forks.map((fork) => html`<${Fork} key=${fork.number} fork=${fork} run=${run} />`)}
    ${forks.length ? html`<p class="faint">In a terminal with this variable, <span class="mono">flyball get</span>, <span class="mono">flyball run</span>, <span class="mono">flyball console</span> and kubectl use the fork. All forks end with flyball dev.</p>` : null}
  </div>`;
}
