export { type LockoutOptions, lockout } from '../kernel/limits/lockout.ts'
export { block, unblock } from './block.ts'
export { blocks } from './blocks.ts'
