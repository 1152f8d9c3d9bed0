#!/usr/bin/env node
// Packs two npm packages: the binary for one platform, and `switchboard`, which starts it.
//
//     node deploy/npm/pack.mjs --binary PATH --platform linux-x64|linux-arm64 --out FOLDER
//
// The version is that of the workspace.
import { execFileSync } from "node:child_process";
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";

const here = import.meta.dirname ?? new URL(".", import.meta.url).pathname;
const root = resolve(here, "../..");
const platforms = ["linux-x64", "linux-arm64"];
const { values } = parseArgs({
  options: { binary: { type: "string" }, platform: { type: "string" }, out: { type: "string" } },
});
if (!values.binary || !values.out || !platforms.includes(values.platform)) {
  console.error(`usage: pack.mjs --binary PATH --platform ${platforms.join("|")} --out FOLDER`);
  process.exit(64);
}
const version = readFileSync(join(root, "Cargo.toml"), "utf8").match(/^version = "(.+)"$/m)[1];
const about = {
  version,
  description: "Makes every connected device callable by every agent and backend",
  license: "Apache-2.0",
};

const work = mkdtempSync(join(tmpdir(), "switchboard-npm-"));
try {
  mkdirSync(values.out, { recursive: true });
  const [os, cpu] = values.platform.split("-");
  pack(`switchboard-${values.platform}`, { os: [os], cpu: [cpu], files: ["switchboard"] }, (folder) => {
    copyFileSync(values.binary, join(folder, "switchboard"));
    chmodSync(join(folder, "switchboard"), 0o755);
  });
  const optionalDependencies = Object.fromEntries(platforms.map((name) => [`switchboard-${name}`, version]));
  const main = { bin: { switchboard: "switchboard.cjs" }, files: ["switchboard.cjs"], optionalDependencies };
  pack("switchboard", main, (folder) => {
    copyFileSync(join(here, "switchboard.cjs"), join(folder, "switchboard.cjs"));
    copyFileSync(join(root, "deploy/npm/README.md"), join(folder, "README.md"));
  });
} finally {
  rmSync(work, { recursive: true });
}

function pack(name, fields, fill) {
  const folder = join(work, name);
  mkdirSync(folder);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ name, ...about, ...fields }, null, 2));
  copyFileSync(join(root, "LICENSE"), join(folder, "LICENSE"));
  fill(folder);
  const file = execFileSync("npm", ["pack", "--silent", "--pack-destination", resolve(values.out)], { cwd: folder });
  console.log(join(values.out, file.toString().trim()));
}
