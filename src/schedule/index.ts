export { type NotScheduled, type Scheduled, type ScheduleOptions, schedule } from './schedule.ts'
