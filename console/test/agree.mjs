// The console, `weir top` and /metrics say the same of the same seconds.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { launch, page, said } from './browser.mjs';

const [, , executablePath, weir, base] = process.argv;
const SECONDS = 10;
const MIB = 1 << 20;
const V = 'projects/weir/locations/local/volumes';
// Each with a load of its own: one that a limit holds, one of constant arrivals.
const NAMES = ['render', 'geo'];

const browser = await launch(executablePath);
const p = await page(browser, base);
await p.goto(`${base}/console/#/volumes`);
await p.locator('.live:not(.off)').waitFor();
await p.getByText('geo', { exact: true }).first().waitFor();

/** Reads counters of a volume, and the clock that rates are made by. */
async function counters() {
  const text = await fetch(`${base}/metrics`).then((r) => r.text());
  const sum = (family, ...labels) =>
    text.split('\n').filter((line) => line.startsWith(`${family}{`) && labels.every((label) => line.includes(label)))
      .reduce((all, line) => all + Number(line.slice(line.lastIndexOf(' '))), 0);
  const uptime = Number(text.match(/^weir_uptime_seconds (\S+)$/m)[1]);
  const volumes = Object.fromEntries(NAMES.map((name) => [name, {
    bytes: sum('weir_operation_bytes_total', `volume="${V}/${name}"`),
    operations: sum('weir_operation_seconds_count', `volume="${V}/${name}"`),
  }]));
  return { uptime, volumes };
}

/** Runs `weir top` once, over so many seconds. */
function top(seconds) {
  const child = spawn(weir, ['top', '--json', '--interval', String(seconds), '--server', base], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.on('data', (part) => (text += part));
  return new Promise((resolve) => child.once('exit', () => resolve(JSON.parse(text))));
}

// What the page shows, by the second, while the others look over the same ten seconds.
const second = await p.locator('main').getAttribute('data-second').then(Number);
await p.waitForFunction((s) => Number(document.querySelector('main').dataset.second) > s, second);
const [first, shown, ofTop] = await Promise.all([
  counters(),
  p.evaluate(async ([names, seconds]) => {
    const seen = {};
    const main = document.querySelector('main');
    const look = () => {
      for (const row of document.querySelectorAll('tbody tr')) {
        const name = row.querySelector('.nm')?.textContent.trim();
        if (!names.includes(name)) continue;
        (seen[main.dataset.second] ??= {})[name] = row.querySelector('td.r b').textContent;
      }
    };
    const watch = new MutationObserver(look);
    watch.observe(main, { subtree: true, childList: true, characterData: true, attributes: true });
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
    watch.disconnect();
    return seen;
  }, [NAMES, SECONDS]),
  top(SECONDS),
]);
const last = await counters();
const seconds = Object.keys(shown).map(Number).sort((a, b) => a - b);
// The first may have been there before the watch began, the last may not be whole.
const whole = seconds.slice(1, -1);
assert.ok(whole.length >= SECONDS - 4, `the page has shown ${seconds}`);

for (const name of NAMES) {
  const history = await fetch(`${base}/v1/history?volume=${V}/${name}&window=60s`).then((r) => r.json());
  const at = (column, s) => history.figures[column][s - history.startEpochSeconds];
  const rate = (s) => (at('readBytesPerSecond', s) + at('writeBytesPerSecond', s)) / MIB;
  for (const s of whole) {
    const said = Number(shown[s][name]);
    const rounding = said < 9.95 ? 0.06 : 0.51;
    assert.ok(Math.abs(said - rate(s)) <= rounding + rate(s) * 0.001, `${name}, second ${s}: the console says ${said}, the server ${rate(s)}`);
  }
  const window = (column) => whole.map((s) => at(column, s)).reduce((a, b) => a + b, 0) / whole.length;
  const mean = (window('readBytesPerSecond') + window('writeBytesPerSecond')) / MIB;
  const span = last.uptime - first.uptime;
  const counted = (last.volumes[name].bytes - first.volumes[name].bytes) / span / MIB;
  const row = ofTop.volumes.find((v) => `/${v.name}`.endsWith(`/${name}`));
  const seen = row.bytes / MIB;
  console.log(`console: ${name}: console and API ${mean.toFixed(2)} MiB/s, /metrics ${counted.toFixed(2)}, weir top ${seen.toFixed(2)}`);
  // The windows differ by up to a second at each end.
  for (const [who, value] of [['/metrics', counted], ['weir top', seen]]) {
    assert.ok(Math.abs(value - mean) <= 0.06 * mean + 0.1, `${name}: ${who} says ${value} MiB/s, the console ${mean}`);
  }
  const operations = ['readOperationsPerSecond', 'writeOperationsPerSecond', 'otherOperationsPerSecond'].map(window).reduce((a, b) => a + b, 0);
  const counts = (last.volumes[name].operations - first.volumes[name].operations) / span;
  assert.ok(Math.abs(counts - operations) <= 0.06 * operations + 1, `${name}: /metrics says ${counts} operations, the console ${operations}`);
}
await browser.close();
assert.deepEqual(said, [], 'the browser said something');
