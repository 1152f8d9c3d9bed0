/** Tables as CSV (RFC 4180), for spreadsheets. */

/** A cell. A text that a spreadsheet would execute is marked as text. @param {unknown} value */
function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = String(value).replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {string[]} head @param {unknown[][]} rows */
export const csv = (head, rows) => [head, ...rows].map((row) => row.map(cell).join(',')).join('\r\n') + '\r\n';

/** Offers a text as a file. @param {string} name @param {string} text */
export function download(name, text) {
  // Spreadsheets read it as UTF-8 because of the mark.
  const url = URL.createObjectURL(new Blob(['\ufeff', text], { type: 'text/csv;charset=utf-8' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1_000);
}
