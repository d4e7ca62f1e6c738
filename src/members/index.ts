export type { TxOptions } from '../kernel/options/calls.ts'
export type { Added, Counted, NotAdded } from './answers.ts'
export { Members } from './members.ts'
export type { AddOptions, MembersConfig } from './options.ts'
