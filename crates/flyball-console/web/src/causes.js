// View 4: the graph of causes of a burst. Boxes are changes and reconciles; the resource version joins them.

import { html } from 'htm/preact';
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { since } from './live.js';
import { List } from './list.js';
import { ObjectName, Problem } from './parts.js';
import { useAnswer, useSeconds } from './react.js';
import { Reconcile, outcomeTone } from './reconcile.js';
import { address, goToObject } from './route.js';
import { age, clock, count, duration, objectName } from './text.js';

const BOX = { width: 178, height: 46, gapX: 40, gapY: 14 };
/** Classes of edges by their evidence: a resource version, an owner reference, the ledger of a discovered operator. */
const EVIDENCE = ['', 'inferred', 'claimed'];

/** Places the nodes: columns are layers, and rows follow the causes, which keeps edges short. */
export function layout(nodes, edges) {
  const columns = [];
  nodes.forEach((node, at) => { (columns[node.layer] ??= []).push(at); });
  const causes = nodes.map(() => []);
  edges.forEach(([from, to]) => causes[to].push(from));
  const places = nodes.map(() => ({ x: 0, y: 0 }));
  columns.forEach((column, layer) => {
    const wish = (at) => (causes[at].length ? causes[at].reduce((sum, from) => sum + places[from].y, 0) / causes[at].length : 0);
    const wishes = new Map(column.map((at) => [at, wish(at)]));
    column.sort((a, b) => wishes.get(a) - wishes.get(b) || a - b);
    let next = 0;
    for (const at of column) {
      const y = Math.max(next, layer ? wishes.get(at) : next);
      places[at] = { x: layer * (BOX.width + BOX.gapX), y };
      next = y + BOX.height + BOX.gapY;
    }
  });
  const width = columns.length * (BOX.width + BOX.gapX) - BOX.gapX;
  const height = Math.max(0, ...places.map((place) => place.y + BOX.height));
  return { places, width, height };
}

const shorten = (text, length) => { const chars = [...(text ?? '')]; return chars.length > length ? `${chars.slice(0, length - 1).join('')}…` : chars.join(''); };

function Graph({ burst, selected, onSelect, onOpen }) {
  const { nodes, edges } = burst;
  const { places, width, height } = useMemo(() => layout(nodes, edges), [burst]);
  const box = useRef(null);
  const pad = 16;
  useEffect(() => {
    const place = places[selected];
    const element = box.current;
    if (!place || !element) return;
    const margin = 40;
    if (place.x - margin < element.scrollLeft) element.scrollLeft = place.x - margin;
    else if (place.x + BOX.width + margin > element.scrollLeft + element.clientWidth) element.scrollLeft = place.x + BOX.width + margin - element.clientWidth;
    if (place.y - margin < element.scrollTop) element.scrollTop = place.y - margin;
    else if (place.y + BOX.height + margin > element.scrollTop + element.clientHeight) element.scrollTop = place.y + BOX.height + margin - element.clientHeight;
  }, [selected, burst.key]);
  const nearest = (candidates, from) => candidates.sort((a, b) => Math.abs(places[a].y - places[from].y) - Math.abs(places[b].y - places[from].y))[0];
  const onKeyDown = (event) => {
    const at = selected < 0 ? 0 : selected;
    const column = () => nodes.map((_, other) => other).filter((other) => nodes[other].layer === nodes[at].layer).sort((a, b) => places[a].y - places[b].y);
    const moves = {
      ArrowRight: () => nearest(edges.filter(([from]) => from === at).map(([, to]) => to), at),
      ArrowLeft: () => nearest(edges.filter(([, to]) => to === at).map(([from]) => from), at),
      ArrowDown: () => { const all = column(); return all[all.indexOf(at) + 1]; },
      ArrowUp: () => { const all = column(); return all[all.indexOf(at) - 1]; },
      Home: () => 0, End: () => nodes.length - 1,
    };
    if (event.key === 'Enter') onOpen(nodes[at]);
    else if (event.key in moves) onSelect(moves[event.key]() ?? at);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const related = new Set(edges.filter(([from, to]) => from === selected || to === selected).flat());
  return html`<div class="graph" ref=${box} tabIndex="0" role="application" aria-label="Graph of causes: arrow keys follow edges, Enter opens the object"
    aria-activedescendant=${selected >= 0 ? `node-${selected}` : undefined} onKeyDown=${onKeyDown} onFocus=${() => selected < 0 && onSelect(0)}>
    <svg width=${width + 2 * pad} height=${height + 2 * pad} role="presentation">
      <defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" /></marker></defs>
      <g transform=${`translate(${pad} ${pad})`}>
        ${edges.map(([from, to, evidence]) => {
          const [a, b] = [places[from], places[to]];
          const [x1, y1, x2, y2] = [a.x + BOX.width, a.y + BOX.height / 2, b.x - 2, b.y + BOX.height / 2];
          const bend = Math.max(24, (x2 - x1) / 2);
          const isNear = from === selected || to === selected;
          return html`<path key=${`${from}-${to}`} class=${`edge ${EVIDENCE[evidence]} ${isNear ? 'near' : ''}`} marker-end="url(#arrow)"
            d=${`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`} />`;
        })}
        ${nodes.map((node, at) => {
          const tone = node.contradicted ? 'warning' : node.reconcile ? outcomeTone(node.title) : node.tone;
          const first = node.reconcile ? node.by : node.object.name;
          const second = node.reconcile ? `${node.title} · ${duration(node.took)} · ${node.object.name}` : `${node.object.kind} · ${node.title}${node.version ? ` · v${node.version}` : ''}`;
          return html`<g key=${at} id=${`node-${at}`} role="img" aria-label=${node.reconcile ? `reconcile by ${first}: ${second}` : `change of ${node.object.kind} ${first}: ${second}`}
            class=${`node ${node.reconcile ? 'reconcile' : 'change'} ${tone} ${at === selected ? 'selected' : ''} ${related.has(at) ? 'near' : ''}`}
            transform=${`translate(${places[at].x} ${places[at].y})`} onClick=${() => onSelect(at)} onDblClick=${() => onOpen(node)}>
            <title>${`${clock(node.time)} ${first}\n${second}${node.reconcile ? '' : ` by ${node.by || 'unknown'}`}`}</title>
            <rect width=${BOX.width} height=${BOX.height} rx=${node.reconcile ? 23 : 5} />
            <text x="14" y="19" class="first">${shorten(first, 22)}</text><text x="14" y="35" class="second">${shorten(second, 25)}</text></g>`;
        })}
      </g>
    </svg></div>`;
}

export function Causes({ rest }) {
  useSeconds();
  const id = rest[0] ?? '';
  const [burst, setBurst] = useState('');
  const [node, setNode] = useState('');
  const { value: answer, error } = useAnswer(`/api/causality?${new URLSearchParams({ ...(id && { id }), ...(burst && { burst }) })}`, 3000);
  const held = useRef(null);
  if (answer) held.current = answer;
  const shown = answer ?? held.current;
  const drawing = shown?.burst;
  const keyOf = (item) => `${item.object.kind}/${objectName(item.object)}/${item.version ?? ''}/${item.operator ?? ''}/${item.id ?? ''}`;
  const selected = drawing ? drawing.nodes.findIndex((item) => keyOf(item) === node) : -1;
  const chosen = drawing?.nodes[selected];
  const known = chosen?.id && shown.reconciles[`${chosen.operator}/${chosen.id}`];
  const open = (item) => goToObject(item.object, item.id && `${item.operator}/${item.id}`);
  return html`<section class="view causes" aria-label="Causes">
    <header class="bar"><h1>Causes</h1>
      ${shown?.object ? html`<span>of <${ObjectName} object=${shown.object} /></span><a class="button" href=${address('causes')}>All</a>` : html`<span class="faint">bursts of changes in the last 15 minutes</span>`}
      <span class="grow"></span>
      <span class="legend"><span><i class="key reconcile"></i>reconcile</span><span><i class="key change"></i>change</span>
        <span><i class="key solid"></i>by version, or a confirmed claim</span><span><i class="key dashed"></i>inferred from owners, or claimed</span></span></header>
    <${Problem}>${error}<//>
    <div class="master wide">
      <${List} autofocus label="Bursts, newest first" items=${shown?.bursts ?? []} keyOf=${(item) => item.key} height=${54}
        selected=${burst || drawing?.key} onSelect=${(key) => { setBurst(key); setNode(''); }} onOpen=${() => document.querySelector('.graph')?.focus()}
        row=${(item) => html`<div class="burst"><div><span class="ellipsis"><${ObjectName} object=${item.object} /></span><span class="faint">${age(since(item.ended))}</span></div>
          <div class="ellipsis faint">${item.failed ? html`<span class="bad">▲ </span>` : null}${count(item.changes, 'change')}${item.reconciles ? `, ${count(item.reconciles, 'reconcile')}` : ''}</div></div>`}
        empty=${shown ? 'No chain of changes was observed yet. Change an object, and its effects appear here.' : 'Reading…'} />
      <div class="pane graph-pane">
        ${drawing ? html`<${Graph} key=${drawing.key} burst=${drawing} selected=${selected} onSelect=${(at) => setNode(keyOf(drawing.nodes[at]))} onOpen=${open} />
          ${drawing.omitted ? html`<p class="faint">and ${count(drawing.omitted, 'later node')}</p>` : null}
          <div class=${`below ${chosen ? "" : "closed"}`} tabIndex="0" role="region" aria-label="Details of the node">${!chosen ? html`<p class="faint">Select a box: click, or Tab to the graph and use the arrow keys.</p>`
            : known ? html`${chosen.contradicted ? html`<p class="warning">The API server contradicts ${count(chosen.contradicted, 'claimed write')}: it names another writer.</p>` : null}<${Reconcile} reconcile=${known.reconcile} operator=${known.operator} />`
              : html`<h3><button class="link" onClick=${() => open(chosen)}><${ObjectName} object=${chosen.object} /></button></h3>
                <dl class="facts"><dt>Change</dt><dd><bdi>${chosen.title}</bdi> ${chosen.version ? html`<span class="version">v${chosen.version}</span>` : null}</dd>
                  <dt>Time</dt><dd>${clock(chosen.time)}</dd><dt>By</dt><dd><bdi>${chosen.by || 'unknown'}</bdi></dd>
                  ${chosen.fields?.length ? html`<dt>Fields</dt><dd><ul class="fields">${chosen.fields.map((field) => html`<li><bdi>${field}</bdi></li>`)}</ul></dd>` : null}</dl>`}</div>`
          : html`<div class="empty">${shown && !shown.ledger ? 'Without a ledger of an operator, edges are inferred from owners and times.' : ''}</div>`}
      </div>
    </div>
  </section>`;
}
