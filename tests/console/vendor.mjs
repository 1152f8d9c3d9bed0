// Writes the libraries of the console to console/vendor, from the packages that npm installed.
//
//     node tests/console/vendor.mjs PACKAGES_FOLDER [--check]
//
// The only change is that bare imports become relative ones, because the console's policy forbids
// import maps. With --check nothing is written, and a difference ends the program with 1.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const VENDOR = join(dirname(fileURLToPath(import.meta.url)), '../../console/vendor');
const MODULES = [
  { name: 'preact', file: 'preact/dist/preact.mjs', to: 'preact.mjs' },
  { name: 'preact/hooks', file: 'preact/hooks/dist/hooks.mjs', to: 'hooks.mjs' },
  { name: '@preact/signals-core', file: '@preact/signals-core/dist/signals-core.mjs', to: 'signals-core.mjs' },
  { name: '@preact/signals', file: '@preact/signals/dist/signals.mjs', to: 'signals.mjs' },
  { name: 'qr', file: 'qr/index.js', to: 'qr.mjs' },
];
const LICENCES = [
  { file: 'preact/LICENSE', to: 'preact.LICENSE' },
  { file: '@preact/signals/LICENSE', to: 'signals.LICENSE' },
  { file: 'qr/LICENSE-MIT', to: 'qr.LICENSE' },
];

/** The vendored files by name, as they follow from the packages. @param {string} packages */
export function vendored(packages) {
  /** @type {Map<string, string>} */
  const files = new Map();
  for (const { file, to } of MODULES) {
    const text = readFileSync(join(packages, file), 'utf8').replace(/\n?\/\/# sourceMappingURL=.*\s*$/, '\n');
    files.set(to, text.replace(/(from\s*)"([^"./][^"]*)"/g, (_, from, name) => `${from}"./${relative(name)}"`));
  }
  for (const { file, to } of LICENCES) files.set(to, readFileSync(join(packages, file), 'utf8'));
  return files;
}

/** @param {string} name */
function relative(name) {
  const module = MODULES.find((module) => module.name === name);
  if (!module) throw new Error(`${name} is imported and not vendored`);
  return module.to;
}

/** What differs between the packages and the vendored files. @param {string} packages */
export function differences(packages) {
  const wanted = vendored(packages);
  const present = readdirSync(VENDOR).filter((name) => !name.endsWith('.d.mts'));
  const stale = present.filter((name) => !wanted.has(name));
  const changed = [...wanted].filter(([name, text]) => !present.includes(name) || readFileSync(join(VENDOR, name), 'utf8') !== text);
  return [...stale, ...changed.map(([name]) => name)];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const packages = process.argv[2];
  if (!packages) throw new Error('usage: node tests/console/vendor.mjs PACKAGES_FOLDER [--check]');
  if (process.argv.includes('--check')) {
    const found = differences(packages);
    if (found.length > 0) {
      console.error(`console/vendor differs from the packages: ${found.join(', ')}`);
      process.exit(1);
    }
  } else {
    mkdirSync(VENDOR, { recursive: true });
    for (const [name, text] of vendored(packages)) writeFileSync(join(VENDOR, name), text);
  }
}
