// `flyball dev --console` in the browser: the explorations of an operator with a bug.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { until } from './cluster.js';

const here = dirname(fileURLToPath(import.meta.url));
/** A name of a file that would be HTML. */
const SAMPLE = '<img src=x onerror=hacked=5>.yaml';

/** Starts `flyball dev --console` with the operator and two samples. */
export async function startDev(flyball, env, args) {
  const folder = mkdtempSync(join(tmpdir(), 'flyball-console-dev-'));
  mkdirSync(join(folder, 'samples'));
  const site = (name) => `apiVersion: example.com/v1\nkind: Site\nmetadata: {name: ${name}}\nspec: {title: <b>Notes</b>}\n`;
  writeFileSync(join(folder, 'samples/blog.yaml'), site('blog'));
  writeFileSync(join(folder, 'samples', SAMPLE), site('shop'));
  // A module outside of the project needs the ending.
  copyFileSync(join(here, 'buggy-operator.js'), join(folder, 'operator.mjs'));
  chmodSync(join(folder, 'operator.mjs'), 0o755);
  const child = spawn(flyball, ['dev', '--program', './operator.mjs', '--console', ...args], { cwd: folder, env: { ...env, KUBECONFIG: undefined, TMPDIR: folder }, stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (chunk) => { text += chunk; });
  const ended = new Promise((resolve) => { child.on('exit', resolve); });
  const stop = async () => { child.kill('SIGINT'); const code = await ended; rmSync(folder, { recursive: true, force: true }); return code; };
  await until('the first reconcile', () => {
    assert.equal(child.exitCode, null, text);
    return text.includes('reconciled <b>blog</b>');
  });
  const urls = text.match(/console at (\S+)/g);
  assert.equal(urls?.length, 1, `the address is printed once: ${text}`);
  const kubeconfig = text.match(/export KUBECONFIG=(\S+)/)[1];
  return { url: urls[0].replace('console at ', ''), stop, folder, kubeconfig };
}

/** Searches with the keyboard, replays the finding, and injects a single fault. */
export async function explorations({ flyball, open, audit, harmless, folder, dev, scheme }) {
  const { page, close } = await open(dev.url, { scheme });
  const shot = async (name) => { await page.waitForTimeout(150); await page.screenshot({ path: `${folder}/${name}-${scheme}.png` }); await audit(page, name); };
  for (const key of ['g', 'e']) await page.keyboard.press(key);
  await until('the address', () => page.evaluate(() => location.hash === '#/explore'), 5);
  await page.waitForFunction(() => document.querySelector('.explore')?.innerText.includes('operator.mjs'));
  await shot('7-explore-empty');
  assert.ok((await page.$$eval('select[aria-label="Samples"] option', (all) => all.map((option) => option.textContent))).includes(SAMPLE));
  await page.selectOption('select[aria-label="Samples"]', 'blog.yaml');
  await page.selectOption('select[aria-label="Duration"]', '300');
  await page.getByRole('button', { name: 'Search' }).focus();
  await page.keyboard.press('Enter');
  await page.waitForSelector('.exploring');
  await page.waitForFunction(() => /injecting faults|reducing/.test(document.querySelector('.exploring')?.innerText ?? ''), null, { timeout: 180_000 });
  await shot('7-explore-running');
  await page.waitForSelector('.finding', { timeout: 300_000 });
  await page.waitForFunction(() => !document.querySelector('.exploring'));
  await harmless(page, ['history', 'configmaps/blog-*', 'no object is created or deleted more often than in an undisturbed run', 'create:configmaps/blog-*#1', 'FAULT', 'reconciled <b>blog</b>', '--samples samples/blog.yaml']);
  await shot('7-explore-finding');

  // Replay, by keyboard: the same finding.
  await page.getByRole('button', { name: 'Replay' }).first().focus();
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => [...document.querySelectorAll('.explore .row')].length === 2, null, { timeout: 180_000 });
  const rows = await page.$$eval('.explore .row', (all) => all.map((row) => row.innerText));
  assert.match(rows[0], /Replay[\s\S]*1 finding/);

  // A single fault that the operator tolerates, in a sample whose name is HTML.
  await page.selectOption('select[aria-label="Samples"]', SAMPLE);
  await page.click('[data-tab="faults"]');
  await page.getByRole('button', { name: 'List the sites' }).click();
  await page.waitForSelector('.faults .site', { timeout: 180_000 });
  await page.keyboard.press('/');
  await page.keyboard.type('create');
  await page.waitForFunction(() => [...document.querySelectorAll('.faults .list:first-child .site')].every((row) => row.innerText.includes('create:configmaps/shop-')));
  await page.focus('.faults .list:first-child');
  await page.keyboard.press('Enter');
  const selected = () => page.evaluate(() => document.querySelector('.faults .list:last-child .row.selected')?.innerText ?? '');
  for (let at = 0; at < 30 && !(await selected()).startsWith('throttle'); at += 1) {
    await page.keyboard.press('ArrowDown');
    await page.waitForTimeout(40);
  }
  await until('the schedule', async () => /^default; seed=1; create:configmaps\/shop-\S+ throttle$/.test(await page.inputValue('#schedule')), 5);
  await harmless(page, [SAMPLE, '429 with Retry-After']);
  await shot('7-explore-faults');
  await page.focus('#schedule');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.explore .pane')?.innerText.includes('All rules hold with this schedule'), null, { timeout: 180_000 });
  await harmless(page, ['throttle', 'Messages', SAMPLE]);
  await shot('7-explore-replay');
  assert.ok(!(await page.evaluate(() => document.querySelector('.explore').innerText)).includes('Notes'), 'no contents of objects');

  // An invalid schedule is rejected with the reason.
  await page.click('[data-tab="faults"]');
  await page.fill('#schedule', 'default; seed=1; create:pods/a#1 silence');
  await page.getByRole('button', { name: 'Inject' }).click();
  await page.waitForFunction(() => document.querySelector('.problem')?.innerText.includes('invalid schedule'));
  // A search that is stopped ends with what it has.
  await page.getByRole('button', { name: 'Search' }).click();
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.click('[data-tab="results"]');
  await page.waitForFunction(() => document.querySelector('.explore .row')?.innerText.includes('stopped'), null, { timeout: 180_000 });
  // A fork: a change of it does not concern the original.
  await page.click('[data-tab="forks"]');
  await page.getByRole('button', { name: 'Fork now' }).click();
  await page.waitForSelector('.finding code');
  await shot('7-explore-forks');
  const kubeconfig = (await page.innerText('.finding code')).replace('export KUBECONFIG=', '');
  const get = (file, args) => execFileSync(flyball, [...args, '--kubeconfig', file], { env: { PATH: process.env.PATH, HOME: dev.folder } }).toString();
  get(kubeconfig, ['delete', 'sites', 'blog']);
  assert.doesNotMatch(get(kubeconfig, ['get', 'sites', '-o', 'name']), /blog/);
  assert.match(get(dev.kubeconfig, ['get', 'sites', '-o', 'name']), /blog/);
  // Its time, by keyboard: paused, stepped by a button and by a typed duration, and continued.
  const time = async () => Date.parse((await page.innerText('.fork-time b')).replace(' ', 'T'));
  const shows = (text) => page.waitForFunction((text) => document.querySelector('.fork-time')?.innerText.includes(text), text, { timeout: 60_000 });
  const press = async (name) => { await page.getByRole('button', { name, exact: true }).focus(); await page.keyboard.press('Enter'); };
  await press('Pause');
  await shows('paused');
  const paused = await time();
  await page.waitForTimeout(2500);
  assert.ok((await time()) - paused <= 1000, 'paused time stands still');
  await press('+1 h');
  await page.waitForFunction((from) => Date.parse(document.querySelector('.fork-time b').innerText.replace(' ', 'T')) >= from + 3600_000, paused, { timeout: 60_000 });
  await shows('paused');
  assert.ok((await time()) < paused + 3602_000);
  await page.fill('.fork-time input', '1 day');
  await page.keyboard.press('Enter');
  await page.waitForFunction(() => document.querySelector('.problem')?.innerText.includes('is not a duration'));
  await page.fill('.fork-time input', '90m');
  await page.keyboard.press('Enter');
  await page.waitForFunction((from) => Date.parse(document.querySelector('.fork-time b').innerText.replace(' ', 'T')) >= from + 9000_000, paused, { timeout: 60_000 });
  await shot('7-explore-fork-time');
  await press('Resume');
  await shows('running');
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.waitForFunction(() => !document.querySelector('.finding'));
  // The browser reports the rejected schedule and the rejected duration.
  await close(['status of 400']);
}

/** Without --write, explorations are shown, and not started. */
export async function readOnlyDev({ open, audit, folder, dev }) {
  const { page, close } = await open(dev.url);
  // The kind did not exist when the console started.
  await page.waitForFunction(() => document.querySelector('.objects').innerText.includes('blog'), null, { timeout: 20_000 });
  await page.evaluate(() => { location.hash = '#/explore'; });
  await page.waitForSelector('.explore .hint');
  assert.ok(await page.getByRole('button', { name: 'Search' }).isDisabled());
  assert.match(await page.innerText('.explore'), /flyball dev --console --write/);
  await page.screenshot({ path: `${folder}/7-explore-read-only-light.png` });
  await audit(page, 'explore, read only');
  const { origin, searchParams } = new URL(dev.url);
  const headers = { authorization: `Bearer ${searchParams.get('token')}`, origin };
  const start = await fetch(`${origin}/api/explore`, { method: 'POST', headers, body: '{"action":"search","seconds":60}' });
  assert.equal(start.status, 403);
  assert.equal((await fetch(`${origin}/api/exploration`)).status, 401);
  await close();
}
