// The console in a real browser, over the real server under load: answers within seconds and two keys, no violation of
// accessibility rules or of the page's own policy, no request elsewhere, and pictures of every page.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { launch, page as openPage, said } from './browser.mjs';

const [, , executablePath, open, closed, token, viewer, pair, out] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(out, { recursive: true });
const V = 'projects/weir/locations/local/volumes';
const FILE = '/weir-bench/d00000/f000000000000000';
const PAGES = {
  overview: '', pools: 'pools', volumes: 'volumes', volume: `volume/${V}/mq`, try: `try/${V}/mq?ask=500`, new: 'new',
  clients: 'clients', snapshots: `snapshots/${V}/mq`, replication: 'replication', benchmarks: 'benchmarks', audit: 'audit', access: 'access',
};
/** Pages whose headline is the server's sentence and nothing else. */
const SAID = ['overview', 'pools', 'volumes', 'clients', 'snapshots', 'replication', 'audit', 'access'];
const browser = await launch(executablePath);
const page = (base, options, expected) => openPage(browser, base, options, expected);

/** Begins at `/`, presses keys, with words between them where one has to say which, and waits for an answer in the headline. */
async function answers(question, keys, wanted, { base = open, words = '' } = {}) {
  const p = await page(base);
  const begun = performance.now();
  await p.goto(`${base}/`);
  await p.locator('main h1').waitFor();
  for (const key of keys) {
    if (key === 't') await p.locator('.chip.w').first().waitFor();
    await p.keyboard.press(key);
    if (key === '/') {
      await p.getByRole('combobox').fill(words);
      await p.getByRole('option', { selected: true }).waitFor();
    }
  }
  await p.locator('h1', { hasText: wanted }).waitFor({ timeout: 5000 }).catch(async () => {
    throw new Error(`${question}: the page says "${await p.locator('h1').innerText()}"`);
  });
  const took = performance.now() - begun;
  assert.ok(took < 5000 && keys.length <= 2, `${question}: ${took} ms`);
  console.log(`console: ${question}: "${(await p.locator('h1').innerText()).replaceAll('\n', ' ')}" in ${Math.round(took)} ms, ${keys.length} keys`);
  await p.context().close();
}

await answers('who is throttled, and by what', [], /waits?\b/);
await answers('what if this volume got more', ['t'], /fits?\b/);
await answers('is my mirror in sync, and what does it cost', ['g', 'r'], /in sync and adds [\d.]+ (µs|ms) to a (write|change)/, { base: pair });
await answers('are my copies up to date', ['g', 'r'], /cop(y is|ies are) as/);
await answers('which snapshot has my file', ['/', 'Enter'], /is in [1-9]\d* of \d+ snapshots and in the volume/, { words: `mq ${FILE}` });
await answers('how does my benchmark compare with the published table', ['g', 'b'],
  /figures? reach(es)? the published ones? of netapp-extreme.*per core of the clients (all do|none does|\d+ of \d+ do)/);
await answers('which snapshots are there', ['g', 's'], /snapshots?\. The newest is \d+ \w+ old/);
await answers('who takes most', ['g', 'c'], /takes \d+ %/);

// The headlines are the server's, in the language that is shown.
{
  const p = await page(open);
  await p.goto(`${open}/console/`);
  for (const language of ['en', 'ja']) {
    await p.evaluate((wanted) => localStorage.setItem('weir.language', wanted), language);
    await p.reload();
    for (const name of SAID) {
      const of = name === 'snapshots' ? `&volume=${encodeURIComponent(`${V}/mq`)}` : '';
      await p.goto(`${open}/console/#/${PAGES[name]}`);
      // Figures in a sentence may change between the two looks.
      const bare = (text) => text.replace(/[\d.,]+/g, '#').replace(/\s/g, ' ');
      let last = [];
      for (const end = Date.now() + 15_000; last[0] === undefined || last[0] !== last[1]; ) {
        assert.ok(Date.now() < end, `${name}, ${language}: the page says "${last[1]}", the server "${last[0]}"`);
        last = await p.evaluate(async (path) => {
          const said = await fetch(path).then((r) => r.json());
          return [said.headline, document.querySelector('main h1')?.innerText ?? ''];
        }, `/v1/headline?page=${name}&language=${language}${of}`);
        assert.ok(language === 'en' ? /^[\x20-\x7e]*\.$/.test(last[0]) : /。$/.test(last[0]), `${name}, ${language}: ${last[0]}`);
        last = last.map(bare);
      }
    }
    const conditions = await p.evaluate(() => fetch('/v1/conditions?language=ja').then((r) => r.json()));
    for (const one of conditions.conditions) assert.match(one.message, /[ぁ-ん]/, one.kind);
  }
  await p.context().close();
  console.log(`console: headlines: ${SAID.length} pages say what the server says, in two languages`);
}

// Accessibility of every page, in both themes and widths.
let rules = 0;
const wrong = [];

/** Notes violations of rules, and a page that is wider than its window. */
async function judge(p, where, width) {
  await p.evaluate(axe);
  const found = await p.evaluate(() => axe.run(document, { rules: { 'target-size': { enabled: true } } }));
  rules += found.passes.length;
  wrong.push(...found.violations.flatMap((v) => v.nodes.map((n) => `${where}: ${v.id}: ${n.target} ${n.failureSummary}`)));
  const wide = await p.evaluate(() => document.documentElement.scrollWidth);
  if (wide > width) wrong.push(`${where}: ${wide} px wide`);
}

/** Goes to a page and waits for what it shows last. */
async function visit(p, base, name, hash) {
  await p.goto(`${base}/console/#/${hash}`);
  await p.locator('main h1').waitFor();
  await p.locator('.live:not(.off)').waitFor();
  if (SAID.includes(name)) await p.locator('main h1', { hasText: /\.$/ }).waitFor();
  if (name === 'volume') await p.locator('.uplot').nth(1).waitFor();
  if (name === 'try') await p.locator('h1', { hasText: 'fit' }).waitFor();
  if (name === 'overview') await p.locator('.chip.w').first().waitFor();
  if (name === 'benchmarks') {
    await p.locator('.legend').first().waitFor().catch(async (e) => {
      throw new Error(`no chart of a benchmark; the page says ${await p.locator('main').innerText()}: ${e.message}`);
    });
  }
}
for (const colorScheme of ['light', 'dark']) {
  for (const width of [1440, 360]) {
    const p = await page(open, { colorScheme, viewport: { width, height: width < 500 ? 780 : 900 } });
    for (const [name, hash] of Object.entries(PAGES)) {
      await visit(p, open, name, hash);
      await judge(p, `${name}, ${colorScheme}, ${width} px`, width);
      const whole = width > 500 && ['overview', 'volume', 'volumes', 'pools'].includes(name);
      await p.screenshot({ path: `${out}/${name}-${colorScheme}${width < 500 ? '-phone' : ''}.png`, fullPage: whole });
    }
    await p.context().close();
  }
}
// Forced colours, and a zoom of 200 %: the window has half the width, and everything twice the size.
for (const [words, options, width] of [
  ['forced colours', { forcedColors: 'active' }, 1440],
  ['200 %', { viewport: { width: 720, height: 450 }, deviceScaleFactor: 2 }, 720],
]) {
  const p = await page(open, options);
  for (const [name, hash] of Object.entries(PAGES)) {
    await visit(p, open, name, hash);
    await judge(p, `${name}, ${words}`, width);
    if (['overview', 'volume'].includes(name)) await p.screenshot({ path: `${out}/${name}-${words.replace(/\W+/g, '-').replace(/-$/, '')}.png` });
  }
  await p.context().close();
}

// The pair's page: state, price and what would be lost, beside what the node says.
for (const [colorScheme, width] of [['light', 1440], ['dark', 1440], ['light', 360]]) {
  const p = await page(pair, { colorScheme, viewport: { width, height: width < 500 ? 780 : 900 } });
  await visit(p, pair, 'pair', 'replication');
  await p.getByText('Acknowledged writes lost').waitFor();
  const said = await p.evaluate(() => fetch('/v1/pair').then((r) => r.json()));
  assert.ok(said.inSync && said.role === 'primary', JSON.stringify(said));
  const text = await p.locator('main').innerText();
  for (const part of [said.partner, 'connected', 'none', 'in sync', 'would serve in', `about ${said.takeoverSeconds} s`]) assert.ok(text.includes(part), `${part} is not on the page of the pair`);
  assert.ok(said.witness.repliedSecondsAgo < 30 && !said.witness.trouble, JSON.stringify(said.witness));
  assert.match(text, /replied \d+ s ago/);
  await judge(p, `pair, ${colorScheme}, ${width} px`, width);
  await p.screenshot({ path: `${out}/pair-${colorScheme}${width < 500 ? '-phone' : ''}.png` });
  if (width > 500 && colorScheme === 'light') {
    // A planned switch is checked first; nothing changes before the button.
    await p.getByRole('button', { name: 'Planned switch…' }).click();
    await p.getByRole('dialog').getByText('has everything and would serve at once').waitFor();
    await p.getByRole('dialog').getByText(/weir pair switch --data .*--validate-only/).waitFor();
    assert.ok(await p.getByRole('dialog').getByRole('button', { name: 'Switch', exact: true }).isEnabled());
    await judge(p, 'planned switch', width);
    await p.screenshot({ path: `${out}/switch-light.png` });
    await p.keyboard.press('Escape');
    const still = await p.evaluate(() => fetch('/v1/pair').then((r) => r.json()));
    assert.equal(still.role, 'primary', 'a dry run has changed something');
  }
  await p.context().close();
}
assert.deepEqual(wrong, []);
console.log(`console: axe: 0 violations on ${Object.keys(PAGES).length} pages × 2 themes × 2 widths, forced colours, 200 %, and the pair (${rules} rules passed)`);

// The focus goes through a page in the order in which it is read, is always seen, and comes back to what opened a dialog.
{
  const p = await page(open);
  await visit(p, open, 'overview', '');
  const order = [];
  for (let n = 0; n < 60; n += 1) {
    await p.keyboard.press('Tab');
    const at = await p.evaluate(() => {
      const e = document.activeElement;
      if (!e || e === document.body) return null;
      const box = e.getBoundingClientRect();
      const bar = document.querySelector('header.top').getBoundingClientRect();
      const inBar = e.closest('header.top, nav, .skip');
      const style = getComputedStyle(e);
      return {
        name: (e.getAttribute('aria-label') || e.innerText || e.tagName).trim().slice(0, 30),
        part: e.closest('nav.side') ? 1 : e.closest('header.top') ? 2 : e.closest('main') ? 3 : e.matches('.skip') ? 0 : 4,
        seen: box.bottom > 0 && box.top < innerHeight && box.width > 0 && (inBar || box.bottom > bar.bottom),
        marked: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
      };
    });
    if (!at) break;
    order.push(at);
  }
  assert.equal(order[0].part, 0, 'the first stop skips to the content');
  assert.ok(order.length > 20, `${order.length} stops`);
  for (let n = 1; n < order.length; n += 1) assert.ok(order[n].part >= order[n - 1].part, `${order[n].name} comes after ${order[n - 1].name}`);
  assert.deepEqual(order.filter((at) => !at.seen).map((at) => at.name), [], 'focus that nobody sees');
  assert.deepEqual(order.filter((at) => !at.marked).map((at) => at.name), [], 'focus without a mark');
  const opener = p.getByRole('button', { name: 'Keys and settings' });
  await opener.focus();
  await p.keyboard.press('Enter');
  await p.locator('dialog[open]').waitFor();
  await p.keyboard.press('Escape');
  await p.locator('dialog[open]').waitFor({ state: 'detached' });
  assert.ok(await opener.evaluate((e) => e === document.activeElement), 'the focus does not come back to what opened the dialog');
  await p.context().close();
  console.log(`console: focus: ${order.length} stops in order, each seen`);
}

// A whole report runs no script and keeps its look.
{
  const p = await page(open, {}, /$^/);
  await p.goto(`${open}/v1/benchmarks/first:report`);
  await p.locator('svg').first().waitFor();
  assert.equal(await p.evaluate(() => getComputedStyle(document.body).margin !== '8px'), true, 'the report has no style');
  await p.context().close();
}

// Keys, their switch, the pause, the other language.
{
  const p = await page(open);
  await p.goto(`${open}/console/`);
  await p.locator('.live:not(.off)').waitFor();
  await p.keyboard.press('/');
  await p.getByRole('combobox').fill('mq 500');
  await p.getByRole('option').filter({ hasText: '500' }).first().waitFor();
  await p.keyboard.press('Enter');
  await p.locator('h1', { hasText: '500 MiB/s' }).waitFor();
  await p.keyboard.press('p');
  await p.locator('.banner').waitFor();
  const second = await p.locator('.banner').innerText();
  await p.waitForTimeout(1500);
  assert.equal(await p.locator('.banner').innerText(), second);
  await p.keyboard.press('p');
  await p.locator('.live:not(.off)').waitFor();
  await p.keyboard.press('?');
  await p.getByRole('checkbox').uncheck();
  await p.getByRole('radio').last().check();
  await p.keyboard.press('Escape');
  await p.locator('h1', { hasText: '入りません' }).waitFor();
  await p.keyboard.press('p');
  assert.equal(await p.locator('.banner').count(), 0, 'keys that are off do something');
  await p.goto(`${open}/console/#/`);
  await p.locator('.chip.w').first().waitFor();
  await p.screenshot({ path: `${out}/overview-japanese.png`, fullPage: true });
  await p.context().close();
}

// On paper of A4: light whatever the screen is, without what only a screen needs, and no table is cut off.
{
  const width = 794;
  const p = await page(open, { colorScheme: 'dark', viewport: { width, height: 1123 } });
  const faults = [];
  for (const [name, hash] of Object.entries(PAGES)) {
    await p.emulateMedia({ media: 'screen', colorScheme: 'dark' });
    await visit(p, open, name, hash);
    await p.emulateMedia({ media: 'print', colorScheme: 'dark' });
    await p.waitForFunction(() => matchMedia('print').matches && getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)');
    faults.push(...(await p.evaluate(([page, wide]) => {
      const wrong = [];
      const shown = (e) => e.getClientRects().length > 0 && getComputedStyle(e).visibility !== 'hidden';
      for (const e of document.querySelectorAll('nav, header.top, .tabbar, .btn')) if (shown(e)) wrong.push(`${page}: ${e.className || e.tagName} is printed`);
      if (document.documentElement.scrollWidth > wide) wrong.push(`${page}: ${document.documentElement.scrollWidth} px wide`);
      for (const e of document.querySelectorAll('main, main *')) {
        if (!shown(e)) continue;
        const colour = getComputedStyle(e).backgroundColor;
        if (!colour.startsWith('rgb')) continue;
        const [r, g, b, a = 1] = colour.match(/[\d.]+/g).map(Number);
        if (a > 0.5 && Math.max(r, g, b) < 90 && /^(MAIN|SECTION|TABLE|TR|TD|DIV|PRE)$/.test(e.tagName)) wrong.push(`${page}: ${e.tagName} ${e.className} is dark`);
      }
      for (const table of document.querySelectorAll('main table')) {
        if (!shown(table)) continue;
        for (let e = table; e && e !== document.body; e = e.parentElement) {
          const style = getComputedStyle(e);
          if (style.overflowX !== 'visible' && e.scrollWidth > e.clientWidth + 1) wrong.push(`${page}: ${e.tagName} ${e.className} cuts its table off`);
        }
        if (table.getBoundingClientRect().right > wide) wrong.push(`${page}: a table ends behind the paper's edge`);
      }
      return wrong;
    }, [name, width])));
    await p.screenshot({ path: `${out}/${name}-print.png`, fullPage: true });
  }
  assert.deepEqual(faults, []);
  await p.context().close();
  console.log(`console: print: ${Object.keys(PAGES).length} pages are light, whole and without navigation`);
}

// Which snapshots have a file: an answer, a download, and a copy beside the original.
{
  const p = await page(open, {}, /findFile\?path=%2Fnone/);
  await p.goto(`${open}/console/#/${PAGES.snapshots}`);
  const field = p.getByRole('searchbox', { name: 'Which snapshots have my file?' });
  await field.fill('/none');
  await field.press('Enter');
  await p.getByRole('alert').filter({ hasText: 'has /none' }).waitFor();
  await field.fill(FILE);
  await field.press('Enter');
  await p.getByRole('status').getByText(/f000000000000000 is in [1-9]\d* of \d+ snapshots and in the volume\./).waitFor();
  await p.evaluate(axe);
  const found = await p.evaluate(() => axe.run(document, { rules: { 'target-size': { enabled: true } } }));
  assert.deepEqual(found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target} ${n.failureSummary}`)), []);
  await p.screenshot({ path: `${out}/find-file.png` });
  const [got] = await Promise.all([p.waitForEvent('download'), p.getByRole('link', { name: /^Download/ }).first().click()]);
  assert.equal(got.suggestedFilename(), 'f000000000000000');
  await got.delete();
  await p.getByRole('button', { name: /^Restore/ }).first().click();
  await p.getByRole('dialog').getByRole('button', { name: 'Restore', exact: true }).click();
  await p.getByText(/Restored as \/weir-bench\/d00000\/f000000000000000\.from-/).waitFor();
  await p.context().close();
}

// A stream that breaks: the figures age, and come back.
{
  const p = await page(open);
  await p.goto(`${open}/console/`);
  await p.locator('.live:not(.off)').waitFor();
  await p.context().setOffline(true);
  await p.route('**/v1/**', (r) => r.abort());
  await p.evaluate(() => document.dispatchEvent(new Event('visibilitychange')));
  await p.keyboard.press('p');
  await p.keyboard.press('p');
  await p.locator('.live.lost').waitFor({ timeout: 15000 });
  await p.screenshot({ path: `${out}/stream-lost.png` });
  assert.ok(await p.locator('main.stale').count());
  await p.unroute('**/v1/**');
  await p.context().setOffline(false);
  await p.locator('.live:not(.lost)').waitFor({ timeout: 15000 });
  said.length = 0;
  await p.context().close();
}

// Signing in, a viewer's limits, and a token that is revoked in mid-view.
{
  const p = await page(closed, {}, /./);
  await p.goto(`${closed}/`);
  await p.getByRole('textbox').or(p.locator('input[type=password]')).first().fill('weir_wrong');
  await p.keyboard.press('Enter');
  await p.getByRole('alert').waitFor();
  await p.screenshot({ path: `${out}/sign-in.png` });
  await p.locator('input[type=password]').fill(viewer);
  await p.keyboard.press('Enter');
  await p.locator('main h1').waitFor();
  await p.locator('.who').waitFor();
  await p.locator('.live:not(.off)').waitFor();
  assert.equal(await p.evaluate(() => document.cookie), '', 'a script can read the cookie');
  assert.ok(!JSON.stringify(await p.evaluate(() => ({ ...localStorage }))).includes('weir_'), 'a token is kept');
  const [cookie] = await p.context().cookies();
  assert.deepEqual([cookie.name, cookie.httpOnly, cookie.secure, cookie.sameSite], ['__Host-weir', true, true, 'Strict']);
  await p.goto(`${closed}/console/#/try/${V}/vol1`);
  await p.goto(`${closed}/console/#/new`);
  await p.getByText('This takes the role editor.').waitFor();
  assert.ok(await p.locator('form button.p').isDisabled());
  const headers = { authorization: `Bearer ${token}` };
  const revoked = await p.context().request.delete(`${closed}/v1/tokens/v`, { headers });
  assert.equal(revoked.status(), 200, await revoked.text());
  await p.locator('.login').waitFor({ timeout: 30000 });
  await p.context().close();
}
await browser.close();
assert.deepEqual(said, [], 'the browser said something');
console.log('console: no message, no violation of the policy, no request elsewhere');
