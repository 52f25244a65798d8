// The address of a view is the fragment of the page: #/objects, #/object/ID, #/object/ID/RECONCILE. A reconcile is
// named by the index of its operator and its ID, as OPERATOR/ID.

/** Returns the parts of the address. */
export function route() {
  const parts = location.hash.replace(/^#\/?/, '').split('/').map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
  return { view: parts[0] || 'objects', rest: parts.slice(1) };
}

/** Returns the address of a view. All parts are escaped, so it is never another kind of link. */
export const address = (...parts) => `#/${parts.map(encodeURIComponent).join('/')}`;

export function go(...parts) {
  location.hash = address(...parts);
}

/** Opens an object by its coordinates, at a reconcile OPERATOR/ID. */
export const goToObject = (object, reconcile = '') =>
  go('ref', object.group ?? '', object.kind, object.namespace ?? '', object.name, reconcile);
