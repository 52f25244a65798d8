// The owner tree of objects: a pure function of the rows, the filter and the collapsed objects.

const order = (row, kinds) => {
  const kind = kinds[row.kind];
  return `${row.namespace}\u0000${kind?.kind ?? ''}\u0000${row.name}\u0000${row.id}`;
};
// Deeper trees are cycles of owners, or not worth their indentation.
const MAX_LEVEL = 32;
const compare = (a, b) => (a.order < b.order ? -1 : a.order > b.order ? 1 : 0);

/** Returns true if a row satisfies the filter. */
export function matches(row, filter, kinds) {
  if (filter.scope === 'unready' && row.health !== 'failed' && row.health !== 'progressing') return false;
  if (filter.namespace && row.namespace !== filter.namespace) return false;
  const kind = kinds[row.kind];
  if (filter.kind && `${kind?.kind}.${kind?.group}` !== filter.kind) return false;
  if (!filter.text) return true;
  row.haystack ??= `${row.namespace}/${row.name} ${kind?.kind ?? ''} ${row.state} ${row.reason ?? ''}`.toLowerCase();
  return filter.text.split(/\s+/).every((word) => row.haystack.includes(word));
}

/** Builds the visible lines: rows that match, and their owners. Returns also the number of matching rows. */
export function build(rows, filter, kinds, collapsed) {
  const children = new Map();
  const roots = [];
  // Objects whose chain of owners ends. An object in a cycle of owners is a root.
  const rooted = new Set();
  const isOwned = (row) => {
    const path = [];
    for (let at = row; at && !rooted.has(at.id); at = rows.get(at.owner)) {
      path.push(at.id);
      if (path.length > MAX_LEVEL) return false;
    }
    path.forEach((id) => rooted.add(id));
    return rows.has(row.owner);
  };
  for (const row of rows.values()) {
    row.order ??= order(row, kinds);
    if (isOwned(row)) {
      const siblings = children.get(row.owner);
      if (siblings) siblings.push(row); else children.set(row.owner, [row]);
    } else {
      roots.push(row);
    }
  }
  const isFiltered = filter.text || filter.namespace || filter.kind || filter.scope === 'unready';
  const visible = new Set();
  let found = 0;
  for (const row of rows.values()) {
    // Objects without a state that own nothing are shown on request only.
    const isQuiet = row.health === 'none' && !row.owner && !children.has(row.id) && !row.deleting;
    if (filter.scope === 'state' && !filter.text && !filter.kind && isQuiet) continue;
    if (!matches(row, filter, kinds)) continue;
    found += 1;
    for (let at = row, depth = 0; at && !visible.has(at.id) && depth <= MAX_LEVEL; at = rows.get(at.owner), depth += 1) {
      visible.add(at.id);
    }
  }
  const lines = [];
  const seen = new Set();
  const add = (siblings, level) => {
    const shown = siblings.filter((row) => visible.has(row.id) && !seen.has(row.id)).sort(compare);
    shown.forEach((row, at) => {
      seen.add(row.id);
      const below = children.get(row.id)?.filter((child) => visible.has(child.id)) ?? [];
      const expanded = below.length ? !collapsed.has(row.id) : null;
      lines.push({ row, level, expanded, at: at + 1, of: shown.length, isMatch: !isFiltered || matches(row, filter, kinds) });
      if (expanded && level < MAX_LEVEL) add(below, level + 1);
    });
  };
  add(roots, 0);
  return { lines, found };
}
