import { readFile } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { Extractor, ExtractorConfig, ExtractorLogLevel } from '@microsoft/api-extractor'
import { expect, inject, test } from 'vitest'
import { ENTRIES } from '../support/entries.ts'

const consumer = inject('consumer')
/** What was packed; api-extractor leaves out what is in node_modules. */
const home = resolve('.')

/** All that an entry exports, with a note where something has no doc comment. */
async function reportOf(entry: string, source: string): Promise<string> {
  const file = join(home, 'dist', source.replace(/ts$/, 'd.ts'))
  const name = entry.replace('/', '-')
  const compilerOptions = {
    module: 'nodenext',
    target: 'es2022',
    strict: true,
    skipLibCheck: true,
    types: [],
  }
  const none = { default: { logLevel: ExtractorLogLevel.None } }
  const config = ExtractorConfig.prepare({
    configObject: {
      projectFolder: home,
      mainEntryPointFilePath: file,
      compiler: { overrideTsconfig: { compilerOptions, files: [file] } },
      apiReport: {
        enabled: true,
        reportFileName: name,
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
  Extractor.invoke(config, {
    localBuild: true,
    messageCallback: (message) => {
      message.handled = true
    },
  })
  return readFile(join(consumer, `${name}.api.md`), 'utf8')
}

test.each([...ENTRIES])('%s exports what etc says: `npm run api` writes it anew', async (entry, source) => {
  const report = await reportOf(entry, source)
  await expect(report).toMatchFileSnapshot(`../../etc/${entry.replace('/', '-')}.api.md`)
  expect(report).not.toContain('(undocumented)')
})
