// Objects of the tests: a shop with a database and pods, objects with hostile text, and many objects.

import { inParallel, until } from './cluster.js';

/** Text that would run as a script, change the direction of text, or color a terminal. */
export const HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>\u202e\u001b[31m&lt;b&gt;"\'';

const crd = (plural, kind, subresources = { status: {} }) => ({
  apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadata: { name: `${plural}.example.com` },
  spec: {
    group: 'example.com', scope: 'Namespaced', names: { plural, singular: kind.toLowerCase(), kind },
    versions: [{
      name: 'v1', served: true, storage: true, subresources,
      schema: { openAPIV3Schema: { type: 'object', 'x-kubernetes-preserve-unknown-fields': true } },
    }],
  },
});

const owned = (owner) => [{ apiVersion: owner.apiVersion, kind: owner.kind, name: owner.metadata.name, uid: owner.metadata.uid, controller: true }];

const PATHS = {
  Namespace: '/api/v1/namespaces', Deployment: '/apis/apps/v1/namespaces/NS/deployments', ConfigMap: '/api/v1/namespaces/NS/configmaps',
  Secret: '/api/v1/namespaces/NS/secrets', Event: '/api/v1/namespaces/NS/events', Pod: '/api/v1/namespaces/NS/pods',
  Ticket: '/apis/example.com/v1/namespaces/NS/tickets', Shop: '/apis/example.com/v1/namespaces/NS/shops', Database: '/apis/example.com/v1/namespaces/NS/databases',
  ClusterRole: '/apis/rbac.authorization.k8s.io/v1/clusterroles', ClusterRoleBinding: '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings',
  Lease: '/apis/coordination.k8s.io/v1/namespaces/NS/leases', ServiceAccount: '/api/v1/namespaces/NS/serviceaccounts',
};
const path = (object) => PATHS[object.kind].replace('NS', object.metadata.namespace ?? 'default');

export async function createShop(cluster) {
  const create = (object) => cluster.request('POST', `${path(object)}?fieldManager=kubectl-create`, object);
  const status = (object, status, manager = 'shop-operator') => cluster.request('PATCH', `${path(object)}/${object.metadata.name}/status?fieldManager=${encodeURIComponent(manager)}`,
    { status }, 'application/merge-patch+json');
  for (const [plural, kind] of [['shops', 'Shop'], ['databases', 'Database']]) {
    await cluster.request('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', crd(plural, kind));
  }
  const namespace = 'team-a';
  await create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  const shop = await until('the kind Shop', () => create({
    apiVersion: 'example.com/v1', kind: 'Shop', metadata: { name: 'corner', namespace }, spec: { replicas: 3, currency: 'EUR' },
  }).catch(() => null));
  const database = await until('the kind Database', () => create({
    apiVersion: 'example.com/v1', kind: 'Database', metadata: { name: 'corner-db', namespace, ownerReferences: owned(shop) }, spec: { size: '10Gi' },
  }).catch(() => null));
  const web = (name, owner, replicas, image = 'registry.example.com/web:1.4') => create({
    apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name, namespace, ownerReferences: owned(owner) },
    spec: { replicas, selector: { matchLabels: { app: name } }, template: { metadata: { labels: { app: name } }, spec: { containers: [{ name: 'web', image }] } } },
  });
  await web('corner-web', shop, 3);
  await web('corner-db', database, 1, 'registry.example.com/db:9.1');
  await create({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'corner-settings', namespace, ownerReferences: owned(shop) }, data: { currency: 'EUR' } });
  await create({ apiVersion: 'v1', kind: 'Secret', metadata: { name: 'corner-password', namespace, ownerReferences: owned(shop) }, stringData: { password: 'never-in-the-console' } });
  const time = new Date(Date.now() - 90_000).toISOString().replace(/\.\d+/, '');
  await status(database, { phase: 'Ready', conditions: [{ type: 'Ready', status: 'True', reason: 'Serving', message: 'accepts connections', lastTransitionTime: time }] });
  await status(shop, { ready: 2, conditions: [
    { type: 'Ready', status: 'False', reason: 'WaitsForPods', message: '2 of 3 pods are ready', lastTransitionTime: time },
    { type: 'DatabaseReady', status: 'True', reason: 'Serving', message: '', lastTransitionTime: time }] });
  const stuck = await create({ apiVersion: 'example.com/v1', kind: 'Shop', metadata: { name: 'closing', namespace, finalizers: ['example.com/bookkeeping'] }, spec: { replicas: 1 } });
  await cluster.request('DELETE', `${path(stuck)}/closing`);
  const failed = await create({ apiVersion: 'example.com/v1', kind: 'Shop', metadata: { name: 'market', namespace }, spec: { replicas: 2 } });
  await status(failed, { conditions: [{ type: 'Degraded', status: 'True', reason: 'NoLicense', message: 'the license server rejects the key', lastTransitionTime: time }] });
  return { shop, database };
}

/** Creates objects with hostile text in every field that may have it. */
export async function createHostile(cluster) {
  const namespace = 'team-a';
  const create = (object) => cluster.request('POST', `${path(object)}?fieldManager=${encodeURIComponent('<b>manager</b>')}`, object);
  const shop = await create({
    apiVersion: 'example.com/v1', kind: 'Shop',
    metadata: { name: 'hostile', namespace, annotations: { 'example.com/text': HOSTILE, 'example.com/link': 'javascript:window.hacked=3' } },
    spec: { text: HOSTILE },
  });
  await cluster.request('PATCH', `${path(shop)}/hostile/status?fieldManager=hostile`, { status: {
    phase: HOSTILE, message: HOSTILE,
    conditions: [{ type: 'Ready', status: 'False', reason: HOSTILE, message: HOSTILE, lastTransitionTime: new Date().toISOString().replace(/\.\d+/, '') }],
  } }, 'application/merge-patch+json');
  // Names of roles are segments of paths, which may be HTML.
  await create({ apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', metadata: { name: '<img src=x onerror=window.hacked=4>' }, rules: [] });
  await create({
    apiVersion: 'v1', kind: 'Event', metadata: { name: 'hostile.1', namespace }, type: 'Warning', reason: HOSTILE, message: HOSTILE,
    involvedObject: { apiVersion: 'example.com/v1', kind: 'Shop', name: 'hostile', namespace, uid: shop.metadata.uid },
    source: { component: HOSTILE }, firstTimestamp: new Date().toISOString().replace(/\.\d+/, ''), lastTimestamp: new Date().toISOString().replace(/\.\d+/, ''), count: 1,
  });
  await create({ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: 'hostile', namespace }, spec: { holderIdentity: HOSTILE, leaseDurationSeconds: 15, renewTime: new Date().toISOString().replace('Z', '000Z') } });
  return shop;
}

/** Creates owner trees with `count` objects: parents with 99 children each. */
export async function createMany(cluster, count) {
  const namespace = 'many';
  // Without a status subresource, objects are created with their status.
  await cluster.request('POST', '/apis/apiextensions.k8s.io/v1/customresourcedefinitions', crd('tickets', 'Ticket', {}));
  await cluster.request('POST', PATHS.Namespace, { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } });
  await until('the kind Ticket', () => cluster.request('GET', PATHS.Ticket.replace('NS', namespace)).catch(() => null));
  const parents = Array.from({ length: Math.ceil(count / 100) }, (_, at) => async () => {
    const name = `shop-${String(at).padStart(4, '0')}`;
    const parent = await cluster.request('POST', PATHS.Shop.replace('NS', namespace), { apiVersion: 'example.com/v1', kind: 'Shop', metadata: { name, namespace }, spec: {} });
    const children = Array.from({ length: 99 }, (_, child) => async () => {
      const object = { apiVersion: 'example.com/v1', kind: 'Ticket', metadata: { name: `${name}-${String(child).padStart(2, '0')}`, namespace, ownerReferences: owned(parent) }, spec: {},
        status: { phase: child % 10 ? 'Running' : 'Pending', message: child % 10 ? '' : 'waits for a free desk' } };
      await cluster.request('POST', PATHS.Ticket.replace('NS', namespace), object);
    });
    await inParallel(4, children);
  });
  await inParallel(4, parents);
}

export const rename = (cluster, namespace, plural, name, patch, manager) => cluster.request('PATCH',
  `/apis/example.com/v1/namespaces/${namespace}/${plural}/${name}?fieldManager=${manager}`, patch, 'application/merge-patch+json');
