// The lanes of a timeline: time from left to right, one row for each kind of entry. Reconciles have a length.

import { html } from 'htm/preact';
import { useRef } from 'preact/hooks';
import { useSize } from './react.js';
import { clock, duration } from './text.js';

export const LANES = [
  ['spec', 'Spec'], ['reconciles', 'Reconciles'], ['children', 'Children'],
  ['status', 'Status'], ['conditions', 'Conditions'], ['events', 'Events'],
];
const ROW = 24;
const LEFT = 104;
const RIGHT = 20;

/** Rounds a duration up to a step of the axis, in seconds. */
function step(seconds) {
  const steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900,
    1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  return steps.find((step) => step >= seconds) ?? Math.ceil(seconds / 2592000) * 2592000;
}

/** Formats a time relative to now. */
const ago = (millis, now) => (millis > now - 500 ? 'now' : `−${duration((now - millis) / 1000)}`);

export function Lanes({ entries, selected, onSelect, range, now }) {
  const box = useRef(null);
  const { width } = useSize(box);
  const [from, to] = range;
  const inner = Math.max(50, width - LEFT - RIGHT);
  const x = (millis) => LEFT + ((millis - from) / (to - from)) * inner;
  const tick = step((to - from) / 1000 / Math.max(2, inner / 130)) * 1000;
  const ticks = [];
  for (let at = to; at >= from && ticks.length < 40; at -= tick) ticks.push(at);
  const height = LANES.length * ROW + 26;
  const marks = entries.map((entry, index) => {
    const time = Date.parse(entry.time);
    if (!(time >= from && time <= to)) return null;
    const lane = LANES.findIndex(([id]) => id === entry.lane);
    const left = x(time);
    const isSelected = index === selected;
    const title = `${clock(entry.time)} ${entry.title}${entry.by ? ` by ${entry.by}` : ''}`;
    const y = lane * ROW + ROW / 2;
    const common = { key: index, class: `mark ${entry.tone} ${isSelected ? 'selected' : ''}`, onClick: () => onSelect(index) };
    if (entry.took != null) {
      const right = Math.min(width - RIGHT, x(time + entry.took * 1000));
      return html`<rect ...${common} x=${left - 1} y=${y - 6} width=${Math.max(4, right - left)} height="12" rx="2"><title>${title}</title></rect>`;
    }
    return html`<circle ...${common} cx=${left} cy=${y} r=${isSelected ? 6 : 4.5}><title>${title}</title></circle>`;
  });
  return html`<div class="lanes" ref=${box}>
    <svg width=${width || 1} height=${height} role="img" aria-label="Lanes of the timeline; the list below has the same entries">
      ${LANES.map(([id, label], at) => html`<g key=${id}>
        <rect class=${`lane ${at % 2 ? 'odd' : ''}`} x="0" y=${at * ROW} width=${width} height=${ROW} />
        <text class="lane-label" x="20" y=${at * ROW + ROW / 2 + 4}>${label}</text></g>`)}
      ${ticks.map((at) => html`<g key=${`t${Math.round(at - to)}`}><line class="tick" x1=${x(at)} x2=${x(at)} y1="0" y2=${LANES.length * ROW} />
        <text class="tick-label" x=${x(at)} y=${LANES.length * ROW + 17} text-anchor=${at === to ? 'end' : 'middle'}>${ago(at, now)}</text></g>`)}
      ${marks}
    </svg>
  </div>`;
}
