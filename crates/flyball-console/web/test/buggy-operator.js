#!/usr/bin/env node
// An operator with a ConfigMap for each Site, for `flyball dev` and explorations. It has a bug: it creates the
// ConfigMap under a generated name and records the name afterwards. After a crash in between, it creates another one.

import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';

const definition = {
  apiVersion: 'apiextensions.k8s.io/v1', kind: 'CustomResourceDefinition', metadata: { name: 'sites.example.com' },
  spec: {
    group: 'example.com', scope: 'Namespaced', names: { plural: 'sites', singular: 'site', kind: 'Site' },
    versions: [{
      name: 'v1', served: true, storage: true, subresources: { status: {} },
      schema: { openAPIV3Schema: { type: 'object', properties: {
        spec: { type: 'object', properties: { title: { type: 'string' } } },
        status: { type: 'object', properties: { configMap: { type: 'string' } } },
      } } },
    }],
  },
};
const role = {
  apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRole', metadata: { name: 'site-operator' },
  rules: [{ apiGroups: ['example.com'], resources: ['sites'], verbs: ['get', 'list'] }, { apiGroups: ['example.com'], resources: ['sites/status'], verbs: ['patch'] },
    { apiGroups: [''], resources: ['configmaps'], verbs: ['create'] }],
};

/** Sends a request with the credentials of the kubeconfig, which the command renews. */
function call(method, path, body, type = 'application/json') {
  const at = process.argv.indexOf('--kubeconfig');
  const config = readFileSync(at > 0 ? process.argv[at + 1] : process.env.KUBECONFIG, 'utf8');
  const field = (name) => config.match(new RegExp(`\\b${name}"?: *"?([^\\s",}]+)`))?.[1];
  const url = new URL(path, field('server'));
  const ca = field('certificate-authority-data');
  const token = field('token') ?? readFileSync(field('tokenFile'), 'utf8').trim();
  const options = { method, headers: { authorization: `Bearer ${token}`, 'content-type': type }, ca: ca && Buffer.from(ca, 'base64'), timeout: 5000 };
  return new Promise((resolve, reject) => {
    const sent = (url.protocol === 'https:' ? https : http).request(url, options, (response) => {
      let text = '';
      response.on('data', (chunk) => { text += chunk; });
      response.on('end', () => (response.statusCode < 300 ? resolve(JSON.parse(text)) : reject(new Error(`${method} ${path}: ${response.statusCode}`))));
      response.on('error', reject);
    });
    sent.on('timeout', () => sent.destroy(new Error(`${method} ${path}: timeout`)));
    sent.on('error', reject);
    sent.end(body && JSON.stringify(body));
  });
}

async function reconcile({ metadata, spec, status }) {
  if (metadata.deletionTimestamp || status?.configMap) return;
  const { name, namespace, uid } = metadata;
  const owner = { apiVersion: 'example.com/v1', kind: 'Site', name, uid, controller: true };
  const map = { metadata: { generateName: `${name}-`, ownerReferences: [owner] }, data: { title: spec.title } };
  const made = await call('POST', `/api/v1/namespaces/${namespace}/configmaps`, map);
  await call('PATCH', `/apis/example.com/v1/namespaces/${namespace}/sites/${name}/status`, { status: { configMap: made.metadata.name } }, 'application/merge-patch+json');
  console.log(`reconciled <b>${name}</b>`);
}

async function run() {
  for (;;) {
    try {
      for (const site of (await call('GET', '/apis/example.com/v1/sites')).items) await reconcile(site);
    } catch (error) {
      console.log(`retry: ${error.message}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const print = (value) => process.stdout.write(JSON.stringify(value));
const commands = { manifests: () => print({ apiVersion: 'v1', kind: 'List', items: [definition, role] }), describe: () => print({ name: 'site-operator' }), run };
commands[process.argv[2]]?.();
