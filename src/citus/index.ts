export { citus } from './citus.ts'
