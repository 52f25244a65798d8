// Small parts of the views.

import { html } from 'htm/preact';
import { useEffect, useState } from 'preact/hooks';
import { objectName } from './text.js';

const GLYPHS = { ready: '●', progressing: '◐', failed: '▲', none: '' };
const WORDS = { ready: 'ready', progressing: 'not ready', failed: 'failed', none: 'no state' };

/** A state with a glyph, so that color is not its only sign. */
export const Health = ({ health, state }) => html`
  <span class=${`health ${health}`}>${health === 'none' ? html`<span class="glyph"></span>` : html`<span class="glyph" role="img" aria-label=${WORDS[health]}>${GLYPHS[health]}</span>`}
    <span class="state">${state || (health === 'none' ? '' : WORDS[health])}</span></span>`;

export const Pill = ({ tone = 'neutral', children }) => html`<span class=${`pill ${tone}`}>${children}</span>`;

/** The name of an object: kind and name; without the namespace, if it is the given one. */
export const ObjectName = ({ object, namespace }) => html`
  <span class="object"><span class="kind">${object.kind}</span> <bdi>${namespace && object.namespace === namespace ? object.name : objectName(object)}</bdi></span>`;

/** A heading with a value. */
export const Tile = ({ label, value, tone = '', hint }) => html`
  <div class=${`tile ${tone}`} title=${hint}><div class="label">${label}</div><div class="value">${value}</div></div>`;

export const Problem = ({ children }) => (children ? html`<div class="problem" role="status">${children}</div>` : null);

/** Buttons of which one is pressed. */
export function Tabs({ tabs, value, onChange, label }) {
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.findIndex((tab) => tab.id === value);
    const next = tabs[(at + step + tabs.length) % tabs.length];
    onChange(next.id);
    event.currentTarget.querySelector(`[data-tab="${next.id}"]`)?.focus();
    event.preventDefault();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map((tab) => html`<button key=${tab.id} role="tab" data-tab=${tab.id} class="tab"
      aria-selected=${tab.id === value ? 'true' : 'false'} tabIndex=${tab.id === value ? 0 : -1}
      onClick=${() => onChange(tab.id)}>${tab.label}${tab.count == null ? null : html`<span class="count">${tab.count}</span>`}</button>`)}
  </div>`;
}

/** A table of few rows. Cells are text or elements. */
export function Table({ columns, rows, label, empty }) {
  if (!rows.length) return html`<div class="empty">${empty}</div>`;
  return html`<div class="table" tabIndex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.class}>${column.label}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr class=${row.class}>${row.cells.map((cell, at) => html`
      <td class=${columns[at].class}>${cell}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** Copies a text, and says so. */
export function Copy({ text, label }) {
  const [done, set] = useState(false);
  useEffect(() => {
    const timer = done && setTimeout(() => set(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = () => navigator.clipboard.writeText(text).then(() => set(true), () => set(false));
  return html`<button class="button small" aria-label=${label} onClick=${copy}>${done ? 'Copied' : 'Copy'}</button>`;
}
