export { calendarWindow } from './calendar-window.ts'
export type { CalendarOptions, CalendarPeriod, Rollover } from './periods.ts'
