import { register } from 'node:module'

// For processes that vitest does not start: `drizzle-orm` is the package of its version 1.0.
register(
  `data:text/javascript,${encodeURIComponent(`
    export function resolve(specifier, context, next) {
      return next(specifier.replace(/^drizzle-orm(?=[/]|$)/, 'drizzle-orm-v1'), context)
    }`)}`,
)
