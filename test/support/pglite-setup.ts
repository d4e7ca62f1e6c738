import { existsSync } from 'node:fs'
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { resolve } from 'node:path'
import { PGlite } from '@electric-sql/pglite'

// Each project loads this module for itself, but all in one process. So they share through a global.
declare global {
  var testPgliteData: Promise<string> | undefined
}

const CACHE = 'node_modules/.cache'

/** Names the data that pglite-data.mjs loads. */
export default async function setUp(): Promise<void> {
  globalThis.testPgliteData ??= madeOnce()
  process.env['PGLITE_DATA'] = resolve(await globalThis.testPgliteData)
}

async function madeOnce(): Promise<string> {
  const { version } = JSON.parse(await readFile('node_modules/@electric-sql/pglite/package.json', 'utf8'))
  const file = `${CACHE}/pglite-${version}.tar`
  if (existsSync(file)) return file
  const pglite = await PGlite.create()
  const data = await pglite.dumpDataDir('none')
  await pglite.close()
  await mkdir(CACHE, { recursive: true })
  // Another run may look for it now.
  const unfinished = `${file}.${process.pid}`
  await writeFile(unfinished, data.stream())
  await rename(unfinished, file)
  return file
}
