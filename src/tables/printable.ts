/**
 * Replaces the characters that a terminal acts on, such as escapes, line ends and marks of direction. Names in
 * a database may contain them.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}]/gu, '\ufffd')
}
