// Text of others: names, messages and annotations are shown as text, with invisible characters made visible.

// Control characters except line breaks and tabs, characters that change the direction of text, and zero-width ones.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
// Text of JSON that may contain such a character, also in escaped form.
const SUSPICIOUS = /\\u|\\[bfr]|[\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/;

/** Makes invisible characters visible, as the command line does: ^[ for ESC, <202e> for others. */
export function clean(text) {
  return text.replace(HIDDEN, (char) => {
    const code = char.charCodeAt(0);
    return code < 0x80 ? `^${String.fromCharCode(code ^ 0x40)}` : `<${code.toString(16)}>`;
  });
}

/** Parses JSON of the server. All strings in it are clean. */
export function parse(json) {
  if (!SUSPICIOUS.test(json)) return JSON.parse(json);
  return JSON.parse(json, (_, value) => (typeof value === 'string' ? clean(value) : value));
}

/** Formats seconds: 850 µs, 12 ms, 3.4 s, 5m12s, 3h20m, 12d. */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return '–';
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds === 0) return '0 s';
  if (seconds < 0.001) return `${Math.max(1, Math.round(seconds * 1e6))} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const rest = (number, unit) => (Math.floor(number) ? `${Math.floor(number)}${unit}` : '');
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m${rest(seconds % 60, 's')}`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)}h${rest((seconds / 60) % 60, 'm')}`;
  return `${Math.floor(seconds / 86400)}d${rest((seconds / 3600) % 24, 'h')}`;
}

/** Formats an age with one unit, as kubectl does. */
export function age(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return '–';
  const s = Math.max(0, seconds);
  if (s < 120) return `${Math.floor(s)}s`;
  if (s < 7200) return `${Math.floor(s / 60)}m`;
  if (s < 172800) return `${Math.floor(s / 3600)}h`;
  return `${Math.floor(s / 86400)}d`;
}

/** Formats bytes. */
export function bytes(count) {
  if (count == null) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at && count < 10 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

const pad = (number, width = 2) => String(number).padStart(width, '0');

/** Formats a time of day, with milliseconds if the text has them. */
export function clock(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return '–';
  const millis = /\.\d/.test(text) ? `.${pad(time.getMilliseconds(), 3)}` : '';
  return `${pad(time.getHours())}:${pad(time.getMinutes())}:${pad(time.getSeconds())}${millis}`;
}

/** Formats a date with the time of day. */
export function moment(text) {
  const time = new Date(text);
  if (Number.isNaN(time.getTime())) return '–';
  return `${time.getFullYear()}-${pad(time.getMonth() + 1)}-${pad(time.getDate())} ${clock(text.replace(/\.\d+/, ''))}`;
}

/** Counts in words: 1 change, 2 changes. */
export const count = (number, noun) => `${number.toLocaleString('en')} ${noun}${number === 1 ? '' : 's'}`;

/** Returns the name of an object: Pod shop/db-0. */
export const objectName = (object) => `${object.namespace ? `${object.namespace}/` : ''}${object.name ?? ''}`;
