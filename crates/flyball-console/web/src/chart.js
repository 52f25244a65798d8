// Charts over time, drawn by uPlot. Colors are those of the theme.

import { html } from 'htm/preact';
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { useSize } from './react.js';

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/**
 * `times` are seconds; `series` are `{label, values, tone, bars, dash}`. `format` formats a value. `summary` describes the
 * chart to readers that do not see it.
 */
export function Chart({ title, times, series, format, theme, summary, height = 132 }) {
  const box = useRef(null);
  const plot = useRef(null);
  const { width } = useSize(box);
  const data = [times, ...series.map((one) => one.values)];
  const latest = useRef(data);
  latest.current = data;
  const shape = series.map((one) => one.label).join();
  useEffect(() => {
    if (!width) return undefined;
    const axis = { stroke: color('muted'), grid: { stroke: color('line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif' };
    plot.current = new uPlot({
      width, height, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      padding: [8, 20, 0, 0],
      scales: { x: { time: true }, y: { range: (_, min, max) => [0, Math.max(max ?? 0, Number.EPSILON) * 1.1] } },
      axes: [
        { ...axis, size: 24, space: 90, values: (_, splits) => splits.map((at) => new Date(at * 1000).toTimeString().slice(0, 5)) },
        { ...axis, size: 58, space: 34, values: (_, splits) => splits.map((value) => format(value)) },
      ],
      series: [{}, ...series.map((one) => ({
        label: one.label, stroke: color(one.tone), width: one.bars ? 0 : 1.75, dash: one.dash, fill: one.bars ? color(one.tone) : undefined,
        paths: one.bars ? uPlot.paths.bars({ size: [0.8, 24], align: 1 }) : undefined, points: { show: one.bars ? false : undefined, size: 4 }, spanGaps: true,
      }))],
    }, latest.current, box.current);
    return () => { plot.current?.destroy(); plot.current = null; };
  }, [width, shape, theme, height]);
  useEffect(() => { plot.current?.setData(latest.current); });
  return html`<figure class="chart"><figcaption><span>${title}</span>
      <span class="legend">${series.map((one) => html`<span><i class=${`swatch ${one.tone}`}></i>${one.label}</span>`)}</span></figcaption>
    <div ref=${box} class="plot" role="img" aria-label=${summary}></div></figure>`;
}
