export { countDenials, type DenialOptions } from './count-denials.ts'
