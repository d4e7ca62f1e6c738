/** The style of every page. The policy of the page allows no other. */
export const STYLE = `
:root { color-scheme: light dark; --line: #8884; --mark: #c2410c; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 62rem; padding: 1.5rem; }
h1 { font-size: 1.4rem; margin: 0 0 .25rem; }
h1 a { color: inherit; text-decoration: none; }
h1 a:hover { text-decoration: underline; }
h2 { font-size: 1.05rem; margin: 1.75rem 0 .5rem; }
header { border-bottom: 1px solid var(--line); margin-bottom: 1rem; padding-bottom: .75rem; }
p { margin: .5rem 0; }
small, .faint { opacity: .7; }
table { border-collapse: collapse; width: 100%; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { padding-left: 0; text-align: left; white-space: normal; word-break: break-all; }
th { font-weight: 600; }
td { font-variant-numeric: tabular-nums; }
code, .key { font-family: ui-monospace, monospace; font-size: .92em; }
.key { background: none; border: 0; color: LinkText; cursor: pointer; padding: 0; text-align: left; word-break: break-all; }
.key:hover { text-decoration: underline; }
.chart { display: block; height: auto; max-width: 44rem; width: 100%; }
.chart rect { fill: var(--mark); }
.chart line { stroke: currentColor; stroke-opacity: .4; }
.chart text { fill: currentColor; font: 10px system-ui, sans-serif; opacity: .75; }
meter { width: 7rem; }
input { font: inherit; padding: .2rem .4rem; }
form.line { align-items: end; display: flex; flex-wrap: wrap; gap: .5rem; margin: .75rem 0; }
button.act { font: inherit; padding: .2rem .8rem; }
.done { border-left: 3px solid #15803d; padding-left: .75rem; }
.failed { border-left: 3px solid var(--mark); padding-left: .75rem; }
`
