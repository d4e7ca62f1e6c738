import { createRequire } from 'node:module'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

/** Imports a module of the project, also one in TypeScript. Its exports, as `import()` gives them. */
export async function loadModule(
  file: string,
): Promise<{ readonly default?: { readonly default?: unknown } }> {
  const tsx = /\.[cm]?tsx?$/.test(file) ? findTsx() : undefined
  // As `node --import tsx` does. Node itself reads no enum, and no import without an extension.
  if (tsx !== undefined) await import(pathToFileURL(tsx).href)
  try {
    return await import(pathToFileURL(file).href)
  } catch (cause) {
    if (Object(cause).code !== 'ERR_UNKNOWN_FILE_EXTENSION') throw cause
    throw new Error(`To read ${file}, Node needs \`tsx\`: install it in the project.`, { cause })
  }
}

/** The project's tsx, or the one that drizzle-kit 0.31 has. */
function findTsx(): string | undefined {
  const project = createRequire(join(process.cwd(), 'package.json'))
  for (const from of [() => project, () => createRequire(project.resolve('drizzle-kit'))]) {
    try {
      return from().resolve('tsx')
    } catch {}
  }
  return undefined
}
