export { block, unblock } from './block.ts'
export { blocks } from './blocks.ts'
export { type LockoutOptions, lockout } from './limit.ts'
