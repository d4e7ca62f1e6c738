export { type PrefetchOptions, prefetch } from './prefetch.ts'
