// A real `switchboard up` with real devices, for the journeys.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

const READY_TIMEOUT_MS = 120_000;

export class System {
  /** @param {string} program */
  constructor(program) {
    this.program = program;
    this.folder = mkdtempSync(join(tmpdir(), 'switchboard-console-'));
    this.processes = [];
  }

  /** Starts `up`; the ready line is in `ready`. */
  async start() {
    const free = ['--http-listen', '--device-listen', '--admin-listen'].flatMap((flag) => [flag, '127.0.0.1:0']);
    this.ready = await this.launch(['up', '--json', '--data-dir', this.folder, ...free]);
    return this;
  }

  /** Connects a device with the demo services, or others. @param {string} id @param {object} [services] */
  async device(id, services) {
    const more = [];
    if (services) {
      const file = join(this.folder, `${id}.json`);
      writeFileSync(file, JSON.stringify({ services }));
      more.push('--services', file);
    }
    await this.launch(['device', '--data-dir', this.folder, '--id', id, ...more]);
    return this.processes.at(-1);
  }

  /** That of a user who has installed the program, and runs `up` with this folder. */
  environment() {
    return { ...process.env, DATABASE_URL: undefined, REDIS_URL: undefined, PATH: dirname(this.program) + delimiter + process.env.PATH, SWITCHBOARD_DATA_DIR: this.folder };
  }

  /** Runs a command of the page in a shell until the system stops; returns its first line. @param {string} command */
  shell(command) {
    return this.launch(['-c', `exec ${command}`], 'bash');
  }

  /** Ends the process of the device that was started last, and forgets the device. @param {string} id */
  async forget(id) {
    const process = this.processes.at(-1);
    const gone = once(process, 'exit');
    process.kill('SIGTERM');
    await gone;
    const deadline = Date.now() + READY_TIMEOUT_MS;
    while ((await this.api('GET', `/v1/devices/${id}`)).online) {
      if (Date.now() > deadline) throw new Error(`${id} is still connected`);
      await new Promise((resume) => { setTimeout(resume, 50); });
    }
    await this.api('DELETE', `/v1/devices/${id}`);
  }

  /** What a command of the page prints. @param {string} command */
  async output(command) {
    return (await promisify(execFile)('bash', ['-c', command], { env: this.environment(), timeout: 60_000 })).stdout;
  }

  /** Starts a process, and returns its first line. @param {string[]} command @param {string} [program] */
  async launch(command, program = this.program) {
    const child = spawn(program, command, { stdio: ['ignore', 'pipe', 'pipe'], env: this.environment() });
    this.processes.push(child);
    let log = '';
    child.stderr.on('data', (data) => { log = (log + data).slice(-8_000); });
    const timer = setTimeout(() => child.kill('SIGKILL'), READY_TIMEOUT_MS);
    const lines = createInterface({ input: child.stdout });
    const [line] = await Promise.race([once(lines, 'line'), once(child, 'exit').then(() => { throw new Error(`${command[0]} ended: ${log}`); })]);
    clearTimeout(timer);
    return JSON.parse(line);
  }

  /** Runs statements in the private database of `up`. @param {string} statements */
  async sql(statements) {
    const client = ['--host', join(this.folder, 'postgres'), '--username', 'switchboard', '--dbname', 'postgres', '--quiet', '--set', 'ON_ERROR_STOP=1', '--command', statements];
    await promisify(execFile)('psql', client);
  }

  /** Sends a request with the first key, or another. @param {string} method @param {string} path @param {unknown} [body] @param {string} [key] */
  async api(method, path, body, key = this.ready.api_key) {
    const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' };
    const response = await fetch(this.ready.http_url + path, { method, headers, body: body && JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? undefined : response.json();
  }

  /** Patches a versioned resource as it is now. @param {string} path @param {unknown} patch */
  async change(path, patch) {
    const authorization = { Authorization: `Bearer ${this.ready.api_key}` };
    const etag = (await fetch(this.ready.http_url + path, { headers: authorization })).headers.get('ETag');
    const headers = { ...authorization, 'If-Match': etag, 'Content-Type': 'application/merge-patch+json' };
    const response = await fetch(this.ready.http_url + path, { method: 'PATCH', headers, body: JSON.stringify(patch) });
    if (!response.ok) throw new Error(`PATCH ${path}: ${response.status} ${await response.text()}`);
  }

  async stop() {
    for (const child of this.processes.reverse()) {
      if (child.exitCode !== null || child.signalCode !== null) continue;
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), 30_000);
      await once(child, 'exit');
      clearTimeout(timer);
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
