// Looks at reports of `weir bench` in Chromium, as people do: on a desk and a phone, light
// and dark, on paper. Fails when a chart is not drawn, text leaves its chart or is too small
// to read, the page is wider than the screen, anything is fetched, or the console says
// anything. Leaves screenshots.
//
// usage: node look.mjs CHROMIUM FOLDER NAME=FILE:LEAST_CHARTS...

import { chromium } from 'playwright-core';
import { pathToFileURL } from 'node:url';

const [executablePath, folder, ...reports] = process.argv.slice(2);
const views = [
  { name: 'desk-light', width: 1280, height: 900, colorScheme: 'light' },
  { name: 'desk-dark', width: 1280, height: 900, colorScheme: 'dark' },
  { name: 'phone-light', width: 360, height: 780, colorScheme: 'light' },
  { name: 'phone-dark', width: 360, height: 780, colorScheme: 'dark' },
  { name: 'print', width: 794, height: 1123, colorScheme: 'light', media: 'print' },
];
// Smallest text that counts as legible, in CSS pixels.
const LEGIBLE = 8.5;
// Least contrast of text with what it stands on (WCAG 2, level AA).
const CONTRAST = 4.5;

// Runs in the page: what is wrong with it.
function judge({ least, legible, contrast, wide }) {
  const faults = [];
  const charts = [...document.querySelectorAll('svg.plot')];
  if (charts.length < least) faults.push(`${charts.length} charts, at least ${least} expected`);
  if (document.documentElement.scrollWidth > wide) {
    faults.push(`the page is ${document.documentElement.scrollWidth} px wide on ${wide}`);
  }
  const numbers = (css) => css.match(/[\d.]+/g).map(Number);
  const luminance = (css) => {
    const [r, g, b] = numbers(css).map((v) => {
      const c = v / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (numbers(c)[3] !== 0) return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const ratio = (a, b) => {
    const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  };
  for (const svg of charts) {
    const name = svg.getAttribute('aria-label');
    const box = svg.getBoundingClientRect();
    if (box.width < 200 || box.height < 100) faults.push(`${name}: ${box.width} × ${box.height} px`);
    const marks = [...svg.querySelectorAll('rect.box, path.line, circle.box')];
    if (!marks.some((m) => m.getBBox().width > 0 || m.getBBox().height > 0)) {
      faults.push(`${name}: nothing is drawn`);
    }
    for (const m of marks) {
      const style = getComputedStyle(m);
      const paint = m.matches('path.line') ? style.stroke : style.fill;
      if (paint === 'none' || ratio(paint, ground(svg)) < 1.8) {
        faults.push(`${name}: a mark of ${paint} on ${ground(svg)}`);
        break;
      }
    }
    for (const t of svg.querySelectorAll('text')) {
      if (!t.textContent.trim()) continue;
      const b = t.getBoundingClientRect();
      const scale = box.width / svg.viewBox.baseVal.width;
      const size = parseFloat(getComputedStyle(t).fontSize) * scale;
      if (size < legible) faults.push(`${name}: “${t.textContent}” is ${size.toFixed(1)} px`);
      if (b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1) {
        faults.push(`${name}: “${t.textContent}” leaves the chart`);
      }
      const c = ratio(getComputedStyle(t).fill, ground(svg));
      if (c < contrast) faults.push(`${name}: “${t.textContent}” has a contrast of ${c.toFixed(1)}`);
    }
    const labels = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim());
    for (let i = 0; i < labels.length; i++) {
      for (let j = i + 1; j < labels.length; j++) {
        const [a, b] = [labels[i].getBoundingClientRect(), labels[j].getBoundingClientRect()];
        const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        // Line boxes touch before letters do.
        if (w > 1 && h > 0.45 * Math.min(a.height, b.height)) {
          faults.push(`${name}: “${labels[i].textContent}” over “${labels[j].textContent}”`);
        }
      }
    }
  }
  for (const e of document.querySelectorAll('h1, h2, h3, p, li, td, th, dt, dd, figcaption')) {
    const c = ratio(getComputedStyle(e).color, ground(e));
    if (c < contrast) {
      faults.push(`“${e.textContent.slice(0, 40)}” has a contrast of ${c.toFixed(1)}`);
      break;
    }
  }
  return { charts: charts.length, tables: document.querySelectorAll('table').length, faults };
}

let failed = 0;
const browser = await chromium.launch({
  executablePath,
  // As root, in a container or a virtual machine, Chromium's own sandbox cannot start; the
  // pages are ours.
  args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
});
try {
  for (const report of reports) {
    const [name, rest] = report.split('=');
    const at = rest.lastIndexOf(':');
    const [file, least] = [rest.slice(0, at), Number(rest.slice(at + 1))];
    for (const view of views) {
      const context = await browser.newContext({
        viewport: { width: view.width, height: view.height },
        colorScheme: view.colorScheme,
        deviceScaleFactor: view.width < 500 ? 2 : 1,
      });
      const page = await context.newPage();
      const said = [];
      page.on('console', (m) => said.push(`the console says: ${m.text()}`));
      page.on('pageerror', (e) => said.push(`error: ${e}`));
      page.on('request', (r) => {
        if (!/^(file|data):/.test(r.url())) said.push(`fetches ${r.url()}`);
      });
      if (view.media) await page.emulateMedia({ media: view.media, colorScheme: view.colorScheme });
      await page.goto(pathToFileURL(file).href);
      const result = await page.evaluate(judge, { least, legible: LEGIBLE, contrast: CONTRAST, wide: view.width });
      const faults = [...said, ...result.faults];
      await page.screenshot({ path: `${folder}/${name}-${view.name}.png`, fullPage: true });
      console.log(`${name} ${view.name}: ${result.charts} charts, ${result.tables} tables${faults.length ? '' : ', ok'}`);
      for (const f of faults.slice(0, 10)) console.error(`  ${f}`);
      failed += faults.length;
      await context.close();
    }
  }
} finally {
  await browser.close();
}
process.exit(failed ? 1 : 0);
