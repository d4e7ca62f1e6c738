export { calendarWindow } from './kernel/limits/calendar-window.ts'
export type { CalendarOptions, CalendarPeriod, Rollover } from './kernel/limits/periods.ts'
