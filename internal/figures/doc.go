// Package figures is how the program's pictures look: typeface, lines, grid and the
// palette of Okabe and Ito, which readers with any kind of colour vision can tell
// apart. It draws a run's curves itself ([WriteCurves]); figures of other data set
// up their plots with [New] and are written with [Write].
//
// The drawing is that of gonum.org/v1/plot.
package figures
