// Checks the types of the console against those of the API document.
//
//     node tests/console/types.mjs PACKAGES_FOLDER OUTPUT_FOLDER
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '../..');
const [packages, output] = process.argv.slice(2).map((path) => resolve(path));
if (!packages || !output) throw new Error('usage: node tests/console/types.mjs PACKAGES_FOLDER OUTPUT_FOLDER');
mkdirSync(output, { recursive: true });

const api = join(output, 'api.d.ts');
run(join(packages, 'openapi-typescript/bin/cli.js'), join(root, 'docs/openapi.json'), '--output', api);
const settings = {
  compilerOptions: {
    allowJs: true, checkJs: true, noEmit: true, strict: true, exactOptionalPropertyTypes: false, noUncheckedIndexedAccess: true,
    noImplicitReturns: true, noUnusedLocals: true, noFallthroughCasesInSwitch: true,
    target: 'es2024', module: 'esnext', moduleResolution: 'bundler', lib: ['es2024', 'dom', 'dom.iterable'], types: [], skipLibCheck: true,
    paths: {
      'switchboard-api': [api], preact: [join(packages, 'preact/src/index.d.ts')], 'preact/hooks': [join(packages, 'preact/hooks/src/index.d.ts')],
      '@preact/signals': [join(packages, '@preact/signals/dist/signals.d.ts')], '@preact/signals-core': [join(packages, '@preact/signals-core/dist/signals-core.d.ts')],
      qr: [join(packages, 'qr/index.d.ts')],
    },
  },
  include: [join(root, 'console/**/*.js')],
};
const file = join(output, 'tsconfig.json');
writeFileSync(file, JSON.stringify(settings, null, 2));
run(join(packages, 'typescript/bin/tsc'), '--project', file);

/** @param {string[]} command */
function run(...command) {
  const { status } = spawnSync(process.execPath, command, { stdio: ['ignore', 'inherit', 'inherit'] });
  if (status !== 0) process.exit(status ?? 1);
}
