export { calendarWindow } from './algorithms/calendar-window.ts'
export type { CalendarOptions, CalendarPeriod, Rollover } from './algorithms/periods.ts'
