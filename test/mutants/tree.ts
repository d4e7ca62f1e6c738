import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, statSync } from 'node:fs'

/** A hash of the source and the tests that mutants are tried on. */
export function treeHash(): string {
  const files = ['src', 'schema', 'test'].flatMap(filesIn)
  return hashOf(files.map((file) => readFileSync(file, 'utf8')).join('\0'))
}

function hashOf(text: string): string {
  return createHash('sha256').update(text).digest('hex')
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((file) => `${folder}/${file}`)
    .filter((file) => statSync(file).isFile() && !file.startsWith('test/mutants/'))
    .toSorted()
}
