export { type LockoutOptions, lockout } from '../algorithms/lockout.ts'
export { block, unblock } from './block.ts'
