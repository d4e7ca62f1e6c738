import { printable } from '../kernel/tables/table-name.ts'

/** The most characters of a key that are shown. */
const MAX_KEY = 48

/** Lines with the cells below each other: the first column begins at the left, the others end at the right. */
export function inColumns(rows: readonly (readonly string[])[]): string[] {
  const cells = rows.map(([key = '', ...numbers]) => [shortened(printable(key)), ...numbers])
  const widths = (cells[0] ?? []).map((_, column) =>
    Math.max(column === 0 ? 24 : 8, ...cells.map((row) => row[column]?.length ?? 0)),
  )
  return cells.map((row) =>
    row
      .map((cell, column) =>
        column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
      )
      .join('  ')
      .trimEnd(),
  )
}

function shortened(key: string): string {
  const characters = [...key]
  return characters.length > MAX_KEY ? `${characters.slice(0, MAX_KEY - 1).join('')}…` : key
}
