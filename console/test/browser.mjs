// A browser whose pages report everything that they say and ask for.
import { chromium } from 'playwright-core';

/** Messages, failures and foreign requests of all pages. */
export const said = [];

/** Starts Chromium at this path. */
export async function launch(executablePath) {
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
}

/** Opens a page that reports whatever the browser says and asks for. `expected` are replies that a test provokes. */
export async function page(browser, base, options = {}, expected = /$^/) {
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
