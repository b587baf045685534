// The console in a real browser, over the real server under load: answers within seconds and two keys, no violation of
// accessibility rules or of the page's own policy, no request elsewhere, and pictures of every page.
import assert from 'node:assert/strict';
import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { chromium } from 'playwright-core';

const [, , executablePath, open, closed, token, viewer, out] = process.argv;
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
mkdirSync(out, { recursive: true });
const V = 'projects/weir/locations/local/volumes';
const PAGES = {
  overview: '', pools: 'pools', volumes: 'volumes', volume: `volume/${V}/mq`, try: `try/${V}/mq?ask=500`, new: 'new',
  clients: 'clients', snapshots: `snapshots/${V}/mq`, replication: 'replication', audit: 'audit', access: 'access',
};
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
const said = [];

/** Opens a page that reports whatever the browser says and asks for. `expected` are replies that a test provokes. */
async function page(base, options = {}, expected = /$^/) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, locale: 'en', ignoreHTTPSErrors: true, ...options });
  const p = await context.newPage();
  // A refusal of a change that is only tried is an answer, which browsers note nevertheless.
  p.on('response', (r) => r.status() >= 400 && !/validateOnly=true/.test(r.url()) && !expected.test(r.url()) && said.push(`${r.status()} ${r.url()}`));
  p.on('console', (m) => /^Failed to load resource/.test(m.text()) || said.push(`${m.type()}: ${m.text()}`));
  p.on('pageerror', (e) => said.push(`error: ${e.message}`));
  p.on('request', (r) => new URL(r.url()).origin === base || said.push(`foreign request: ${r.url()}`));
  await p.addInitScript(() => addEventListener('securitypolicyviolation', (e) => console.error(`policy: ${e.violatedDirective} ${e.blockedURI}`)));
  return p;
}

/** Begins at `/`, presses keys and waits for an answer in the headline. */
async function answers(question, keys, wanted) {
  const p = await page(open);
  const begun = performance.now();
  await p.goto(`${open}/`);
  await p.locator('main h1').waitFor();
  for (const key of keys) {
    if (key === 't') await p.locator('.chip.w').first().waitFor();
    await p.keyboard.press(key);
  }
  await p.locator('h1', { hasText: wanted }).waitFor({ timeout: 5000 });
  const took = performance.now() - begun;
  assert.ok(took < 5000 && keys.length <= 2, `${question}: ${took} ms`);
  console.log(`console: ${question}: "${(await p.locator('h1').innerText()).replaceAll('\n', ' ')}" in ${Math.round(took)} ms, ${keys.length} keys`);
  await p.context().close();
}

await answers('who is throttled, and by what', [], /waits?\b/);
await answers('what if this volume got more', ['t'], /fits?\b/);
await answers('are my copies in sync', ['g', 'r'], /in sync|cop(y is|ies are) as/);
await answers('which snapshots are there', ['g', 's'], /snapshots?\. The newest is from/);
await answers('who takes most', ['g', 'c'], /takes \d+ %/);

// Accessibility of every page, in both themes and widths.
let rules = 0;
const wrong = [];
for (const colorScheme of ['light', 'dark']) {
  for (const width of [1440, 360]) {
    const p = await page(open, { colorScheme, viewport: { width, height: width < 500 ? 780 : 900 } });
    for (const [name, hash] of Object.entries(PAGES)) {
      await p.goto(`${open}/console/#/${hash}`);
      await p.locator('main h1').waitFor();
      await p.locator('.live:not(.off)').waitFor();
      if (name === 'volume') await p.locator('.uplot').nth(1).waitFor();
      if (name === 'try') await p.locator('h1', { hasText: 'fit' }).waitFor();
      if (name === 'overview') await p.locator('.chip.w').first().waitFor();
      await p.evaluate(axe);
      const found = await p.evaluate(() => axe.run(document, { rules: { 'target-size': { enabled: true } } }));
      rules += found.passes.length;
      const where = `${name}, ${colorScheme}, ${width} px`;
      wrong.push(...found.violations.flatMap((v) => v.nodes.map((n) => `${where}: ${v.id}: ${n.target} ${n.failureSummary}`)));
      const wide = await p.evaluate(() => document.documentElement.scrollWidth);
      if (wide > width) wrong.push(`${where}: ${wide} px wide`);
      const whole = width > 500 && ['overview', 'volume', 'volumes', 'pools'].includes(name);
      await p.screenshot({ path: `${out}/${name}-${colorScheme}${width < 500 ? '-phone' : ''}.png`, fullPage: whole });
    }
    await p.context().close();
  }
}
assert.deepEqual(wrong, []);
console.log(`console: axe: 0 violations on ${Object.keys(PAGES).length} pages × 2 themes × 2 widths (${rules} rules passed)`);

// Keys, their switch, the pause, the other language.
{
  const p = await page(open);
  await p.goto(`${open}/console/`);
  await p.locator('.live:not(.off)').waitFor();
  await p.keyboard.press('/');
  await p.getByRole('combobox').fill('mq 500');
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
  await p.emulateMedia({ media: 'print' });
  await p.screenshot({ path: `${out}/overview-print.png` });
  await p.context().close();
}

// Which snapshots have a file: an answer, a download, and a copy beside the original.
{
  const p = await page(open, {}, /findFile\?path=%2Fnone/);
  await p.goto(`${open}/console/#/${PAGES.snapshots}`);
  const field = p.getByRole('searchbox', { name: 'Which snapshots have my file?' });
  await field.fill('/none');
  await field.press('Enter');
  await p.getByRole('alert').filter({ hasText: 'has /none' }).waitFor();
  await field.fill('/weir-bench/d00000/f000000000000000');
  await field.press('Enter');
  await p.getByText(/f000000000000000 is in [1-9]\d* of \d+ snapshots and in the volume\./).waitFor();
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
