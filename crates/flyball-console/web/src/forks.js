// Forks of the view of explorations: copies of the control plane in the state of a moment.

import { html } from 'htm/preact';
import { live, since } from './live.js';
import { Copy } from './parts.js';
import { age, clock } from './text.js';

function Fork({ fork, run }) {
  const line = `export KUBECONFIG=${fork.kubeconfig}`;
  return html`<article class="finding">
    <header><b>Fork ${fork.number}</b> <span class="faint">state of ${clock(fork.time.replace(/\.\d+/, ''))}, ${age(since(fork.time))} ago · <span class="mono">${fork.url}</span></span>
      <span class="grow"></span><button class="button small" onClick=${() => run({ action: 'removeFork', number: fork.number })}>Remove</button></header>
    <div class="line"><code><bdi>${line}</bdi></code><${Copy} text=${line} label=${`Copy the line of fork ${fork.number}`} /></div>
  </article>`;
}

export function Forks({ forks, run }) {
  return html`<div class="pane" tabIndex="0" role="region" aria-label="Forks">
    <div class="hint"><p><b>A fork is a copy of this control plane as it is now</b>, with its own controllers and simulated nodes. Try a change on it: this control plane and its operator do not observe it.</p></div>
    <p><button class="button primary" disabled=${!live.status?.write} onClick=${() => run({ action: 'fork' })}>Fork now</button></p>
    ${forks.map((fork) => html`<${Fork} key=${fork.number} fork=${fork} run=${run} />`)}
    ${forks.length ? html`<p class="faint">In a terminal with this variable, <span class="mono">flyball get</span>, <span class="mono">flyball run</span>, <span class="mono">flyball console</span> and kubectl use the fork. All forks end with flyball dev.</p>` : null}
  </div>`;
}
