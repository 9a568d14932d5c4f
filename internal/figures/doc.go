// Package figures draws the program's figures: typeface, lines, grid and the palette of Okabe and
// Ito, which readers with any kind of colour vision can tell apart. A plot is set up with [New]; it gets
// lines and points ([Series]), heat maps ([Heat]) or bars ([Bars]), and names in a [Legend] or beside
// what they name ([EndLabels], [PointLabels]).
//
// Pictures are PNG, SVG or PDF ([WriteGrid], [WriteHeats], [WriteCurves]). [Inline] draws the same plots
// for a page of HTML, whose style and script colour, light up and explain what is drawn.
//
// The drawing is that of gonum.org/v1/plot.
package figures
