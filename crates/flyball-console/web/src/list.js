// A virtualized list: only visible rows are in the document. Arrow keys select, Enter opens.

import { html } from 'htm/preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { useLatest, useSize } from './react.js';

const OVERSCAN = 8;

/**
 * `items` are rows of equal height; `row(item, index, isSelected)` renders the content of one. `selected` is the key of
 * an item. `keys` handles other keys for the selected item. With `tree`, items have `level`, `expanded`, `at`, `of`.
 */
export function List({ items, keyOf, row, height = 30, label, selected, onSelect, onOpen, keys, tree, autofocus, empty }) {
  const scroller = useRef(null);
  const { height: visible } = useSize(scroller);
  const [top, setTop] = useState(0);
  const index = items.findIndex((item) => keyOf(item) === selected);
  const state = useLatest({ items, index, visible });
  const id = useRef(`list-${Math.random().toString(36).slice(2)}`).current;

  const reveal = (at) => {
    const element = scroller.current;
    if (!element || at < 0) return;
    const start = at * height;
    if (start < element.scrollTop) element.scrollTop = start;
    else if (start + height > element.scrollTop + element.clientHeight) {
      element.scrollTop = start + height - element.clientHeight;
    }
  };
  useLayoutEffect(() => { if (autofocus) scroller.current?.focus({ preventScroll: true }); }, [autofocus]);
  useLayoutEffect(() => reveal(index), [selected]);

  const move = (to) => {
    const { items } = state.current;
    if (!items.length) return;
    const at = Math.max(0, Math.min(items.length - 1, to));
    onSelect?.(keyOf(items[at]), items[at]);
    reveal(at);
  };
  const onKeyDown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { index, items, visible } = state.current;
    const page = Math.max(1, Math.floor(visible / height) - 1);
    const steps = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, PageDown: page, PageUp: -page };
    if (event.key in steps) move(index < 0 && steps[event.key] > 0 ? 0 : index + steps[event.key]);
    else if (event.key === 'Home') move(0);
    else if (event.key === 'End') move(items.length - 1);
    else if (event.key === 'Enter' && index >= 0) onOpen?.(items[index]);
    else if (!(index >= 0 && keys?.(event.key, items[index], move))) return;
    event.preventDefault();
    event.stopPropagation();
  };

  const first = Math.max(0, Math.floor(top / height) - OVERSCAN);
  const last = Math.min(items.length, Math.ceil((top + (visible || 600)) / height) + OVERSCAN);
  const rows = [];
  for (let at = first; at < last; at += 1) {
    const item = items[at];
    const key = keyOf(item);
    const isSelected = at === index;
    const aria = tree
      ? { role: 'treeitem', 'aria-level': item.level + 1, 'aria-expanded': item.expanded ?? undefined,
        'aria-posinset': item.at, 'aria-setsize': item.of }
      : { role: 'option', 'aria-posinset': at + 1, 'aria-setsize': items.length };
    rows.push(html`
      <div key=${key} id=${`${id}-${at}`} class=${`row ${isSelected ? 'selected' : ''}`} ...${aria}
        aria-selected=${isSelected ? 'true' : 'false'}
        style=${{ transform: `translateY(${at * height}px)`, height: `${height}px` }}
        onClick=${() => onSelect?.(key, item)} onDblClick=${() => onOpen?.(item)}>
        ${row(item, at, isSelected)}
      </div>`);
  }
  const active = index >= first && index < last ? `${id}-${index}` : undefined;
  return html`
    <div class="list" ref=${scroller} role=${tree ? 'tree' : 'listbox'} tabIndex="0" aria-label=${label}
      aria-activedescendant=${active} onKeyDown=${onKeyDown}
      onFocus=${() => requestAnimationFrame(() => { if (state.current.index < 0) move(0); })}
      onScroll=${(event) => setTop(event.currentTarget.scrollTop)}>
      ${items.length
        ? html`<div class="sizer" role="presentation" style=${{ height: `${items.length * height}px` }}>${rows}</div>`
        : html`<div class="empty" role=${tree ? 'treeitem' : 'option'} aria-selected="false">${empty ?? 'Nothing here.'}</div>`}
    </div>`;
}
