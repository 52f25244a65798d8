// The hint of views that need an operator.

import { html } from 'htm/preact';

export const Hint = () => html`<div class="hint"><p><b>No operator is connected.</b> Queues, charts and causes of reconciles come from operators built with Flyball. Those that <code>flyball deploy</code> installed, and those on this machine, are found without a flag; others by their Deployment or the address of their metrics:</p>
  <pre tabIndex="0">flyball console --operator NAMESPACE/DEPLOYMENT</pre>
  <p>Objects, timelines and leases work without it, on any cluster.</p></div>`;
