#!/usr/bin/env node
// Runs the binary of the package for this platform, with the arguments and the exit code of its own.
"use strict";
const { spawn } = require("node:child_process");

const name = `switchboard-${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${name}/switchboard`);
} catch {
  console.error(
    `switchboard: the package \`${name}\` is not installed. Either there is no build for this ` +
      "platform, or npm ran with --omit=optional.",
  );
  process.exit(69);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// The terminal signals the whole process group; the program decides when both end.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => signal === "SIGINT" || child.kill(signal));
}
child.on("error", (error) => {
  console.error(`switchboard: ${binary} does not start: ${error.message}`);
  process.exit(126);
});
child.on("exit", (code, signal) => {
  if (signal) process.removeAllListeners(signal), process.kill(process.pid, signal);
  else process.exit(code);
});
