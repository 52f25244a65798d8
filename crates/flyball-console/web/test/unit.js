// Tests of pure functions of the page: node --test test/unit.js

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { age, bytes, clean, duration, parse } from '../src/text.js';
import { build } from '../src/tree.js';

const KINDS = [{ kind: 'Shop', group: 'example.com' }, { kind: 'Pod', group: '' }];
const ALL = { text: '', kind: '', namespace: '', scope: 'all' };

const rows = (...list) => new Map(list.map(([id, owner = '', rest = {}]) => [id, {
  id, owner, kind: 0, namespace: 'a', name: id, state: '', health: 'ready', ...rest }]));
const lines = (map, filter = {}, collapsed = []) =>
  build(map, { ...ALL, ...filter }, KINDS, new Set(collapsed)).lines.map((line) => `${'  '.repeat(line.level)}${line.row.id}`);

test('objects are below their owners, in order', () => {
  assert.deepEqual(lines(rows(['b'], ['b1', 'b'], ['a'], ['a2', 'a'], ['a1', 'a'], ['orphan', 'gone'])), ['a', '  a1', '  a2', 'b', '  b1', 'orphan']);
});

test('owners of matching objects stay, others vanish', () => {
  const map = rows(['a'], ['a1', 'a', { health: 'failed' }], ['a2', 'a'], ['b']);
  assert.deepEqual(lines(map, { scope: 'unready' }), ['a', '  a1']);
  assert.deepEqual(lines(map, { text: 'a2' }), ['a', '  a2']);
  assert.deepEqual(lines(map, { text: 'shop a2' }), ['a', '  a2']);
  assert.deepEqual(lines(map, { text: 'a2 pod' }), []);
  assert.deepEqual(lines(map, {}, ['a']), ['a', 'b']);
});

test('objects without a state are listed if they belong to others', () => {
  const map = rows(['role', '', { health: 'none' }], ['a'], ['settings', 'a', { health: 'none' }]);
  assert.deepEqual(lines(map, { scope: 'state' }), ['a', '  settings']);
  assert.deepEqual(lines(map, { scope: 'state', text: 'role' }), ['role']);
});

test('objects in a cycle of owners are roots', () => {
  assert.deepEqual(lines(rows(['a', 'a'])), ['a']);
  assert.deepEqual(lines(rows(['a', 'b'], ['b', 'a'])), ['a', 'b']);
});

test('invisible characters are visible', () => {
  assert.equal(clean('a\u001b[31m\u202eb\u0000\u200b\u007f\u009b\n'), 'a^[[31m<202e>b^@<200b>^?<9b>\n');
  assert.deepEqual(parse('{"a":["\\u001b\\u202e"]}'), { a: ['^[<202e>'] });
  assert.deepEqual(parse('{"a":"\u202e"}'), { a: '<202e>' });
  assert.deepEqual(parse('{"a":1,"b":"ü\\n"}'), { a: 1, b: 'ü\n' });
});

test('numbers have units', () => {
  const texts = [0, 0.0000004, 0.0004, 0.0123, 1.25, 75, 3600, 90061, -3, null, Infinity].map(duration);
  assert.deepEqual(texts, ['0 s', '1 µs', '400 µs', '12 ms', '1.3 s', '1m15s', '1h', '1d1h', '-3.0 s', '–', '–']);
  assert.deepEqual([0, 119, 120, 7200, 200_000].map(age), ['0s', '119s', '2m', '2h', '2d']);
  assert.deepEqual([0, 1023, 1536, 10 << 20].map(bytes), ['0 B', '1023 B', '1.5 KiB', '10 MiB']);
});
