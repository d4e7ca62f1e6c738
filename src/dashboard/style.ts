/** The style of every page. The policy of the page allows no other. */
export const STYLE = `
:root { color-scheme: light dark; --text: #1c1917; --ground: #fff; --faint: #57534e; --line: #d6d3d1; --link: #1d4ed8; --bad: #b91c1c; --near: #b45309; --some: #0f766e; --good: #15803d; --rail: #e7e5e4; }
@media (prefers-color-scheme: dark) { :root { --text: #f5f5f4; --ground: #1c1917; --faint: #a8a29e; --line: #44403c; --link: #93c5fd; --bad: #f87171; --near: #fbbf24; --some: #5eead4; --good: #4ade80; --rail: #44403c; } }
* { box-sizing: border-box; }
body { background: var(--ground); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 72rem; overflow-wrap: break-word; padding: 1.25rem clamp(.75rem, 3vw, 2rem) 3rem; }
a, summary { color: var(--link); }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.skip { left: -99rem; position: absolute; }
.skip:focus { background: var(--ground); left: .5rem; padding: .5rem; top: .5rem; z-index: 1; }
h1 { font-size: 1.4rem; line-height: 1.25; margin: .25rem 0; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
header { border-bottom: 1px solid var(--line); padding-bottom: .75rem; }
header p, footer p { margin: .15rem 0; }
footer { border-top: 1px solid var(--line); color: var(--faint); margin-top: 2.5rem; padding-top: .75rem; }
p { margin: .5rem 0; }
small { color: var(--faint); display: block; font-size: .85em; }
.faint { color: var(--faint); }
code, .key { font-family: ui-monospace, monospace; font-size: .95em; overflow-wrap: anywhere; unicode-bidi: isolate; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .4rem .6rem; text-align: left; vertical-align: top; }
th { font-weight: 600; }
tbody th { font-weight: 400; }
tbody th, td.text { min-width: 9rem; overflow-wrap: anywhere; }
td.text { min-width: 11rem; }
table:not(:has(thead th:nth-child(3))) { max-width: 48rem; }
.number { font-variant-numeric: tabular-nums; text-align: right; }
td.number { white-space: nowrap; }
.held { display: block; }
th:first-child { padding-left: 0; }
td:last-child, thead th:last-child { padding-right: 0; }
.bad, .all { color: var(--bad); font-weight: 600; }
.some { color: var(--faint); }
.near { color: var(--near); }
.share { display: inline-block; min-width: 3.5em; text-align: right; }
.charts { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); }
figure { align-content: start; column-gap: .5rem; display: grid; grid-template-columns: auto minmax(0, 1fr); margin: .5rem 0; max-width: 48rem; }
figcaption, details { grid-column: 1 / -1; margin: .25rem 0; }
.axis { color: var(--faint); display: flex; flex-direction: column; font-size: .85rem; justify-content: space-between; line-height: 1; text-align: right; }
.names { color: var(--faint); display: grid; font-size: .85rem; grid-column: 2; grid-template-columns: repeat(4, 1fr); }
.chart { border-bottom: 1px solid var(--line); border-left: 1px solid var(--line); display: block; height: 7rem; width: 100%; }
.spark { border-bottom: 1px solid var(--line); display: block; height: 2rem; min-width: 8rem; width: 100%; }
.chart rect, .spark rect { fill: var(--bad); }
svg rect.hit { fill: transparent; }
.meter { display: inline-block; height: .5rem; margin-right: .4rem; width: 5rem; }
.meter rect { fill: var(--some); }
.meter.near rect { fill: var(--near); }
.meter.all rect { fill: var(--bad); }
.meter rect.rail { fill: var(--rail); }
dl { display: grid; gap: .25rem 1rem; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); margin: .5rem 0; }
dl div { display: flex; justify-content: space-between; gap: .5rem; }
dt { color: var(--faint); }
dd { font-variant-numeric: tabular-nums; margin: 0; }
form { margin: .5rem 0; }
form.line { align-items: end; display: flex; flex-wrap: wrap; gap: .5rem; }
form.line small { flex-basis: 100%; }
td form.line { justify-content: flex-end; margin: 0; }
td form.line + form.line { margin-top: .5rem; }
label { display: block; }
input, select, button { background: var(--ground); border: 1px solid var(--faint); border-radius: .25rem; color: inherit; font: inherit; max-width: 100%; min-height: 2.25rem; padding: .25rem .6rem; }
input { min-width: 0; width: 14rem; }
input[inputmode] { width: 8rem; }
button { cursor: pointer; }
button.act { background: var(--link); border-color: var(--link); color: var(--ground); }
.pager { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: .5rem 0; }
.done, .failed { border-left: 4px solid var(--good); padding: .25rem .75rem; }
.failed { border-color: var(--bad); }
.acts { align-items: start; display: grid; gap: 0 1.5rem; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
@media (max-width: 60rem) {
  table, tbody, tr, tbody th, td { display: block; }
  thead { display: none; }
  tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  tbody th, td { border: 0; padding: .1rem 0; }
  td { display: flex; gap: 1rem; justify-content: space-between; }
  td::before { color: var(--faint); content: attr(data-name); flex-shrink: 0; text-align: left; }
  td > :last-child { text-align: right; }
  td:empty { display: none; }
}
`
