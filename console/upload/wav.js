/** Recordings as WAV: what browsers record by themselves (WebM, MP4) is no format of a voice's sample. */

/** Samples between -1 and 1 as a WAV file of 16 bits. @param {Float32Array} samples @param {number} rate in Hz */
export function wav(samples, rate) {
  const view = new DataView(new ArrayBuffer(44 + samples.length * 2));
  const text = (/** @type {number} */ at, /** @type {string} */ value) => [...value].forEach((letter, index) => view.setUint8(at + index, letter.charCodeAt(0)));
  text(0, 'RIFF');
  view.setUint32(4, 36 + samples.length * 2, true);
  text(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, 'data');
  view.setUint32(40, samples.length * 2, true);
  samples.forEach((sample, index) => view.setInt16(44 + index * 2, Math.round(Math.max(-1, Math.min(1, sample)) * 32_767), true));
  return new Blob([view.buffer], { type: 'audio/wav' });
}

/** The rate of a recorded sample: three minutes are less than 10 MiB. */
const RATE_HZ = 24_000;
export const MAX_RECORDING_MS = 180_000;
/** The API takes no shorter samples. */
const MIN_RECORDING_S = 1;

/** Why this page cannot record: the address is not encrypted, or the browser lacks what it takes. @returns {'insecure' | 'unable' | undefined} */
export function recordingObstacle() {
  if (!globalThis.isSecureContext) return 'insecure';
  return globalThis.navigator?.mediaDevices && 'MediaRecorder' in globalThis && 'OfflineAudioContext' in globalThis ? undefined : 'unable';
}

/** @typedef {{stop: () => Promise<Blob | undefined>, discard: () => Promise<unknown>}} Recording */

/** Begins to record; `stop` returns the WAV file, or nothing of less than a second. @returns {Promise<Recording>} */
export async function record() {
  const stream = await navigator.mediaDevices.getUserMedia({ audio: { channelCount: 1 } });
  const release = () => stream.getTracks().forEach((track) => track.stop());
  try {
    const recorder = new MediaRecorder(stream);
    /** @type {Blob[]} */
    const pieces = [];
    recorder.ondataavailable = (event) => pieces.push(event.data);
    recorder.start();
    const end = () => new Promise((resolve) => {
      recorder.onstop = resolve;
      if (recorder.state === 'inactive') resolve(undefined);
      else recorder.stop();
      release();
    });
    return {
      async stop() {
        await end();
        const decoded = await new OfflineAudioContext(1, 1, RATE_HZ).decodeAudioData(await new Blob(pieces, { type: recorder.mimeType }).arrayBuffer());
        return decoded.duration < MIN_RECORDING_S ? undefined : wav(decoded.getChannelData(0), decoded.sampleRate);
      },
      discard: end,
    };
  } catch (error) {
    release();
    throw error;
  }
}
