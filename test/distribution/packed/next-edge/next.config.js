// The packages that the application uses are links to those of this repository.
module.exports = { turbopack: { root: '/' } }
