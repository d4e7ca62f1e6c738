import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { CompilerState, Extractor, ExtractorConfig, ExtractorLogLevel } from '@microsoft/api-extractor'
import { beforeAll, expect, inject, test } from 'vitest'
import { ENTRIES } from '../../support/entries.ts'

const consumer = inject('consumer')
/** What was packed; api-extractor leaves out what is in node_modules. */
const home = resolve('.')

const files = new Map(
  [...ENTRIES].map(([entry, source]) => [entry, join(home, 'dist', source.replace(/ts$/, 'd.ts'))]),
)
const nameOf = (entry: string) => entry.replace('/', '-')

function configOf(entry: string): ExtractorConfig {
  const compilerOptions = {
    module: 'nodenext',
    target: 'es2022',
    strict: true,
    skipLibCheck: true,
    types: [],
  }
  const none = { default: { logLevel: ExtractorLogLevel.None } }
  return ExtractorConfig.prepare({
    configObject: {
      projectFolder: home,
      mainEntryPointFilePath: files.get(entry) ?? '',
      compiler: { overrideTsconfig: { compilerOptions, files: [...files.values()] } },
      apiReport: {
        enabled: true,
        reportFileName: nameOf(entry),
        reportFolder: consumer,
        reportTempFolder: join(consumer, 'temp'),
      },
      messages: {
        compilerMessageReporting: none,
        extractorMessageReporting: none,
        tsdocMessageReporting: none,
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: join(home, 'package.json'),
  })
}

// The type checker reads all entries once.
let compilerState: CompilerState
beforeAll(() => {
  compilerState = CompilerState.create(configOf('drizzle-ratelimit'))
})

/** All that an entry exports, with a note where something has no doc comment. */
async function reportOf(entry: string): Promise<string> {
  Extractor.invoke(configOf(entry), {
    compilerState,
    localBuild: true,
    messageCallback: (message) => {
      message.handled = true
    },
  })
  return readFile(join(consumer, `${nameOf(entry)}.api.md`), 'utf8')
}

test.each([...ENTRIES.keys()])(
  '%s exports what its report in etc/ lists: `npm run api` writes the report',
  async (entry) => {
    const report = await reportOf(entry)
    await expect(report).toMatchFileSnapshot(`../../../etc/${nameOf(entry)}.api.md`)
    expect(report).not.toContain('(undocumented)')
  },
)
