import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { type Plugin, defineConfig } from 'vite';

// WEIR is the server that `npx vite` passes requests on to while one works on the console.
const server = process.env.WEIR ?? 'http://127.0.0.1:8049';

/** Leaves a compressed copy beside each file, for servers to send as it is. */
function compress(folder: string): void {
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) compress(path);
    else if (/\.(html|js|css|svg|txt)$/.test(name)) {
      writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
    }
  }
}

/** Writes the licences of all packages that became a part of the console. */
function licences(): Plugin {
  return {
    name: 'licences',
    generateBundle(_, bundle) {
      const folders = new Set<string>();
      for (const part of Object.values(bundle)) {
        if (part.type !== 'chunk') continue;
        for (const id of part.moduleIds) {
          const found = /^.*\/node_modules\/(@[^/]+\/)?[^/]+/.exec(id.replace(/^\0/, ''));
          if (found) folders.add(found[0]);
        }
      }
      const texts = [...folders].sort().map((folder) => {
        const about = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
        const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
        const text = file && existsSync(join(folder, file)) ? readFileSync(join(folder, file), 'utf8').trim() : '';
        return `${about.name} ${about.version}: ${about.license}\n\n${text}\n`;
      });
      this.emitFile({ type: 'asset', fileName: 'licences.txt', source: texts.join('\n') });
    },
  };
}

export default defineConfig({
  base: '/console/',
  plugins: [svelte(), licences(), { name: 'compress', closeBundle: () => compress(join(import.meta.dirname, 'dist')) }],
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: true,
  },
  server: { proxy: Object.fromEntries(['/v1', '/api'].map((p) => [p, { target: server }])) },
});
