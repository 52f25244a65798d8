// A control plane for the tests, and a small client for it.

import { execFileSync, spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Starts a control plane with its own home directory. */
export function startCluster(flyball, nodes) {
  const home = mkdtempSync(join(tmpdir(), 'flyball-console-'));
  const env = { ...process.env, HOME: home, KUBECONFIG: join(home, 'config'), XDG_STATE_HOME: join(home, 'state') };
  execFileSync(flyball, ['cluster', 'up', '--quiet', '--nodes', String(nodes)], { env, stdio: 'inherit' });
  const config = readFileSync(env.KUBECONFIG, 'utf8');
  const field = (name) => Buffer.from(config.match(new RegExp(`${name}: (\\S+)`))[1], 'base64');
  const agent = new https.Agent({
    keepAlive: true, maxSockets: 16, ca: field('certificate-authority-data'),
    cert: field('client-certificate-data'), key: field('client-key-data'),
  });
  const server = config.match(/server: (\S+)/)[1];

  /** Sends a request, and fails on error statuses. */
  const request = (method, path, body, type = 'application/json') => new Promise((resolve, reject) => {
    const sent = https.request(new URL(path, server), { method, agent, headers: { 'content-type': type } }, (response) => {
      const chunks = [];
      response.on('data', (chunk) => chunks.push(chunk));
      response.on('end', () => {
        const text = Buffer.concat(chunks).toString();
        if (response.statusCode >= 300) reject(new Error(`${method} ${path}: ${response.statusCode} ${text.slice(0, 500)}`));
        else resolve(text ? JSON.parse(text) : null);
      });
    });
    sent.on('error', reject);
    sent.end(body && JSON.stringify(body));
  });
  const stop = () => {
    agent.destroy();
    execFileSync(flyball, ['cluster', 'down', '--quiet'], { env, stdio: 'inherit' });
    rmSync(home, { recursive: true, force: true });
  };
  return { env, request, stop };
}

/** Starts a console, and returns its URL and the end of its process. */
export function startConsole(flyball, env, args) {
  const child = spawn(flyball, ['console', '-o', 'json', ...args], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const url = new Promise((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (chunk) => {
      text += chunk;
      const found = text.match(/"url": ?"([^"]+)"/);
      if (found) resolve(found[1]);
    });
    child.on('exit', (code) => reject(new Error(`flyball console has ended with ${code}`)));
  });
  const stop = () => new Promise((resolve) => { child.removeAllListeners('exit'); child.on('exit', resolve); child.kill('SIGTERM'); });
  return url.then((url) => ({ url, stop, pid: child.pid }));
}

/** Runs tasks with a limited number at a time. */
export async function inParallel(limit, tasks) {
  let next = 0;
  const worker = async () => { while (next < tasks.length) await tasks[next++](); };
  await Promise.all(Array.from({ length: limit }, worker));
}

/** Repeats a check until it returns something. */
export async function until(what, check, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; Date.now() < end;) {
    const found = await check();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`timeout: ${what}`);
}
