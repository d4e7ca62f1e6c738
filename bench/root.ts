import { pathToFileURL } from 'node:url'

/** The folder of the package, where npm runs its scripts. The compiled benchmarks lie elsewhere. */
export const ROOT: URL = pathToFileURL(`${process.cwd()}/`)
