/** A test file. */
export interface Test {
  /** Vitest's. */
  readonly project: string
  /** Between test/ and .test.ts. */
  readonly path: string
}

/** One word for one test. */
export function nameOf({ project, path }: Test): string {
  return `${project}: ${path}`
}

/** Its path in the repository. */
export function fileOf({ path }: Test): string {
  return `test/${path}.test.ts`
}

export function testNamed(name: string): Test {
  const [project = '', path = ''] = name.split(': ')
  return { project, path }
}
