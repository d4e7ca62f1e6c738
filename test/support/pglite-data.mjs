import { readFileSync } from 'node:fs'
import { PGlite } from '@electric-sql/pglite'

// Making the data of a PGlite takes several times as long as loading it. So each one loads what PGLITE_DATA has: in
// tests, and in the processes that they start with `--import`.

const file = process.env['PGLITE_DATA']
const { create } = PGlite
if (file && create.name !== 'loading') {
  PGlite.create = function loading(options) {
    return create.call(PGlite, { loadDataDir: new Blob([readFileSync(file)]), ...options })
  }
}
