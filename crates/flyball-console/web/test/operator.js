// A server in place of an operator: answers of the shape of `/debug/flyball`, about the objects of the tests.

import http from 'node:http';
import { HOSTILE } from './objects.js';

const iso = (millis) => new Date(millis).toISOString().replace('Z', '000Z');

/** Deterministic numbers, so that screenshots are comparable. */
function random(seed) {
  let state = seed;
  return () => { state = (state * 1664525 + 1013904223) % 4294967296; return state / 4294967296; };
}

const object = (kind, name, group = 'example.com') => ({ group, version: 'v1', kind, namespace: 'team-a', name });

/** Reconciles of 15 minutes by two operators: a shop causes a database, and both their deployments. */
function ledger(now, versions) {
  const draw = random(7);
  const shops = [];
  const databases = [];
  let number = 0;
  const add = (list, began, of, rest) => {
    number += 1;
    list.push({ id: number.toString(16).padStart(16, '0'), controller: list === shops ? 'shop' : 'database', object: of, began: iso(began), waited: 0.0004 + draw() / 500,
      took: 0.004 + draw() ** 4 / 2, causes: [], causesOmitted: 0, reads: [], writes: [], outcome: 'success', next: { type: 'change' }, ...rest });
    return list.at(-1);
  };
  for (let at = now - 880_000, count = 0; at < now - 9_000; at += 6_000 + draw() * 9_000, count += 1) {
    const name = ['corner', 'market', 'closing', 'station', 'harbor'][count % 5];
    const fails = name === 'market' && count % 2;
    add(shops, at, object('Shop', name), {
      causes: [fails ? { type: 'backoff' } : { type: 'requeueAfter' }], outcome: fails ? 'error' : 'requeue_after', failures: fails ? 3 + count : undefined,
      error: fails ? 'license server: 403 Forbidden: the key of market is not valid for this server' : undefined,
      next: fails ? { type: 'backoff', at: iso(at + 32_000) } : { type: 'requeueAfter', seconds: 30, at: iso(at + 30_000) }, skipped: 3,
      reads: [{ list: { group: '', version: 'v1', kind: 'Pod', namespace: 'team-a' }, objects: 4 }],
    });
    if (count % 3 === 0) add(databases, at + 700, object('Database', 'corner-db'), { causes: [{ type: 'source', name: 'poll' }], skipped: 2 });
  }
  // A burst across both operators, joined by resource versions.
  const start = now - 8_000;
  const first = add(shops, start, object('Shop', 'corner'), {
    resourceVersion: versions.shop, generation: 2, took: 0.084,
    causes: [{ type: 'change', object: object('Shop', 'corner'), before: '40', after: versions.shop }],
    reads: [{ object: object('ConfigMap', 'corner-settings', ''), resourceVersion: '61' }, { list: { group: 'apps', version: 'v1', kind: 'Deployment', namespace: 'team-a' }, objects: 1 }],
    writes: [
      { object: object('Database', 'corner-db'), verb: 'apply', before: '90', after: '9001', result: 'changed', fields: ['spec.size'], fieldsOmitted: 0 },
      { object: object('Deployment', 'corner-web', 'apps'), verb: 'apply', before: '91', after: '9002', result: 'changed', fields: ['spec.replicas', 'spec.template.spec.containers[name=web].image'], fieldsOmitted: 0 },
      { object: object('ConfigMap', 'corner-settings', ''), verb: 'apply', before: '92', after: '9003', result: 'changed', fields: ['data.currency'], fieldsOmitted: 0 },
      { object: object('Shop', 'corner'), verb: 'apply', subresource: 'status', before: versions.shop, after: '9004', result: 'changed', fields: ['status.conditions[type=Ready].message'], fieldsOmitted: 0 }],
    writesOmitted: 0, skipped: 1, externalCalls: [{ system: 'payments', calls: 3, failures: 1, took: 0.041 }, { system: 'dns', calls: 1, failures: 0, took: 0.006 }],
  });
  add(shops, start + 130, object('Shop', 'corner'), { causes: [
    { type: 'change', object: object('Shop', 'corner'), before: versions.shop, after: '9004' },
    { type: 'change', object: object('Deployment', 'corner-web', 'apps'), before: '9002', after: '9010' }], took: 0.012, skipped: 4 });
  add(databases, start + 160, object('Database', 'corner-db'), {
    causes: [{ type: 'change', object: object('Database', 'corner-db'), before: '90', after: '9001' }], took: 0.31,
    writes: [{ object: object('Deployment', 'corner-db', 'apps'), verb: 'apply', before: '70', after: '9020', result: 'changed', fields: ['spec.template'], fieldsOmitted: 0 },
      { object: object('Database', 'corner-db'), verb: 'apply', subresource: 'status', before: '9001', after: '9021', result: 'changed', fields: ['status.phase'], fieldsOmitted: 0 }] });
  add(databases, start + 900, object('Database', 'corner-db'), { causes: [{ type: 'change', object: object('Deployment', 'corner-db', 'apps'), before: '9020', after: '9025' }],
    outcome: 'wait', error: 'waits for pods of deployment corner-db: 0 of 1 are ready', took: 0.02 });
  add(shops, start + 1200, object('Shop', 'corner'), { causes: [{ type: 'change', object: object('Database', 'corner-db'), before: '9001', after: '9021' }], took: 0.02,
    writes: [{ object: object('Shop', 'corner'), verb: 'apply', subresource: 'status', before: '9004', after: '9030', result: 'changed', fields: ['status.ready'], fieldsOmitted: 0 }],
    flaps: [] });
  // Hostile text in every field that an operator may fill with text of others.
  const bad = { group: '', version: 'v1', kind: HOSTILE, namespace: HOSTILE, name: HOSTILE };
  add(shops, now - 30_000, object('Shop', 'hostile'), {
    controller: 'shop', outcome: HOSTILE, error: HOSTILE, causes: [{ type: 'change', object: bad, before: HOSTILE, after: HOSTILE }, { type: 'source', name: HOSTILE }, { type: HOSTILE }],
    reads: [{ object: bad, resourceVersion: HOSTILE }, { list: bad, objects: 1 }],
    writes: [{ object: object('Shop', 'hostile'), verb: HOSTILE, subresource: HOSTILE, before: '1', after: '9050', result: 'changed', fields: [HOSTILE], fieldsOmitted: 1 }],
    flaps: [{ object: bad, field: HOSTILE, managers: [HOSTILE] }], next: { type: HOSTILE },
    externalCalls: [{ system: HOSTILE, calls: HOSTILE, failures: HOSTILE, took: HOSTILE }],
  });
  return { shops, databases, burst: first.id };
}

function state(now, name, controllers, stores) {
  return { operator: name, instance: `${name}-6d4f8-abcde`, fieldManager: name, version: '1.2.0', flyball: '0.1.0', time: iso(now), started: iso(now - 7_200_000), shuttingDown: false,
    lease: { namespace: 'team-a', name, holder: `${name}-6d4f8-abcde`, leading: true }, controllers, stores };
}

const store = (now, group, kind, resource, objects, bytes, rest = {}) => ({ group, version: 'v1', kind, resource, objects, bytes, revision: '9030', synced: true, absent: false, changed: iso(now - 3_000), ...rest });

/** Starts the server. `path` of the URL selects the operator: /shop and /database. */
export async function startOperators(versions) {
  const start = Date.now();
  const { shops, databases, burst } = ledger(start, versions);
  const answer = (url) => {
    const now = Date.now();
    const isShop = url.pathname.startsWith('/shop');
    const list = isShop ? shops : databases;
    if (url.pathname.endsWith('/reconciles')) {
      const since = url.searchParams.get('since') ?? '';
      const limit = Number(url.searchParams.get('limit') ?? 100);
      const found = list.filter((one) => one.began >= since).reverse();
      return { time: iso(now), operator: isShop ? 'shop-operator' : 'database-operator', reconciles: found.slice(0, limit), omitted: Math.max(0, found.length - limit) };
    }
    if (url.pathname.endsWith('/object')) {
      if (!isShop) return { time: iso(now), operator: 'database-operator', instance: 'database-operator-0', leading: true, controllers: [], stores: [], writes: [] };
      const of = object(HOSTILE, HOSTILE, HOSTILE);
      return { time: iso(now), operator: 'shop-operator', instance: 'shop-operator-6d4f8-abcde', leading: true,
        controllers: [{ name: 'shop', active: true, cached: true, resourceVersion: '40', paused: false, deleting: false, filtered: [{ object: object('Pod', 'corner-web-1', ''), before: '71', after: '72', at: iso(now - 40_000) }, { object: of, before: HOSTILE, after: HOSTILE, at: HOSTILE }], last: list.at(-2) }],
        stores: [store(now, 'example.com', 'Shop', 'shops', 6, 9_220, { cached: true, mayBeSelected: true }), store(now, 'example.com', 'Shop', 'shops', 0, 0, { selection: 'labels tier=gold', cached: false, mayBeSelected: false })], writes: [] };
    }
    const key = (name, state, rest) => ({ namespace: 'team-a', name, state, causes: [], causesOmitted: 0, ...rest });
    if (!isShop) {
      return state(now, 'database-operator', [{ name: 'database', group: 'example.com', version: 'v1', kind: 'Database', workers: 4, active: true,
        queue: { ready: 0, running: 1, delayed: 0, backoff: 0, throttled: 0, held: 0, adds: 60, retries: 0, echoes: 3, overdue: 0, keysOmitted: 0,
          keys: [key('corner-db', 'running', { since: iso(now - 1_200), again: true })] }, ledger: { reconciles: databases.length, bytes: 90_112, dropped: 0, flaps: 0 } }],
      [store(now, 'example.com', 'Database', 'databases', 1, 1_432), store(now, 'apps', 'Deployment', 'deployments', 2, 5_120, { selection: 'labels app' })]);
    }
    return state(now, 'shop-operator', [
      { name: 'shop', group: 'example.com', version: 'v1', kind: 'Shop', workers: 16, active: true,
        queue: { ready: 1, running: 1, delayed: 2, backoff: 1, throttled: 0, held: 1, adds: 812, retries: 44, echoes: 33, overdue: 0, keysOmitted: 0, keys: [
          key('station', 'ready', { since: iso(now - 300), causes: [{ type: 'change', object: object('Shop', 'station'), before: '120', after: '133' }] }),
          key('corner', 'held', { until: iso(now + 4_000), causes: [{ type: 'change', object: object('Deployment', 'corner-web', 'apps'), before: '9002', after: '9010' }], writes: [{ object: object('Shop', 'corner'), after: '9030' }] }),
          key('harbor', 'running', { since: iso(now - 700) }),
          key('market', 'backoff', { until: iso(now + 21_000), failures: 14 }),
          key('closing', 'delayed', { until: iso(now + 17_000), causes: [{ type: 'requeueAfter' }] }),
          key('kiosk', 'delayed', { until: iso(now + 29_000) }),
          key(HOSTILE, HOSTILE, { since: HOSTILE, causes: [{ type: HOSTILE }] })] }, ledger: { reconciles: shops.length, bytes: 310_211, dropped: 0, flaps: 0 } },
      { name: 'voucher', group: 'example.com', version: 'v1', kind: 'Voucher', workers: 2, active: false, waitsFor: ['cache vouchers'],
        queue: { ready: 0, running: 0, delayed: 0, backoff: 0, throttled: 0, held: 0, adds: 0, retries: 0, echoes: 0, overdue: 0, keys: [], keysOmitted: 0 }, ledger: { reconciles: 0, bytes: 0, dropped: 0, flaps: 0 } }],
    [store(now, 'example.com', 'Shop', 'shops', 6, 9_220), store(now, 'example.com', 'Database', 'databases', 1, 1_432), store(now, 'apps', 'Deployment', 'deployments', 2, 5_120),
      store(now, '', 'Pod', 'pods', 4, 18_900, { namespace: 'team-a', error: { message: `watch: connection reset by peer ${HOSTILE}`, since: iso(now - 42_000) } }),
      store(now, 'example.com', 'Voucher', 'vouchers', 0, 0, { synced: false, absent: true, changed: undefined })]);
  };
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://localhost');
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(url.pathname.includes('/debug/flyball') ? answer(url) : { error: url.pathname }));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const base = `http://127.0.0.1:${server.address().port}`;
  return { urls: [`${base}/shop`, `${base}/database`], burst, stop: () => server.close() };
}
