/**
 * The text without what a terminal acts on, such as escape sequences, line ends and marks of direction. Names
 * in a database may have them.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\ufffd')
}
