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

export function testNamed(name: string): Test {
  const [project = '', path = ''] = name.split(': ')
  return { project, path }
}
