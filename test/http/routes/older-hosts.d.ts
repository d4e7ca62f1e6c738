/** Express 4, which does not catch what an async handler throws. */
declare module 'express-v4' {
  export { default } from 'express'
}

/** The oldest express-rate-limit that the store promises to work with. */
declare module 'express-rate-limit-v7' {
  export { rateLimit } from 'express-rate-limit'
}
