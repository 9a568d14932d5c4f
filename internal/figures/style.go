package figures

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
)

// Colors are those of lines, in their order: the palette of Okabe and Ito without its
// yellow, which is too faint for lines on white.
var Colors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, // blue
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, // vermilion
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, // bluish green
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, // reddish purple
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, // orange
	color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, // sky blue
	color.RGBA{R: 0x00, G: 0x00, B: 0x00, A: 0xff}, // black
}

// Faint is the colour of lines that are there to compare others with.
var Faint = color.Gray{Y: 0xc4}

// LineWidth is that of a curve.
var LineWidth = vg.Points(1.3)

// Sans is the typeface of all text.
func Sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// New returns an empty plot.
func New() *plot.Plot {
	p := plot.New()
	p.Title.TextStyle.Font = Sans(11)
	p.Title.Padding = vg.Points(5)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = Sans(10)
		axis.Label.Padding = vg.Points(3)
		axis.Tick.Label.Font = Sans(9)
		axis.LineStyle.Width = vg.Points(0.6)
		axis.Tick.LineStyle.Width = vg.Points(0.6)
		axis.Tick.Length = vg.Points(4)
	}
	StyleLegend(&p.Legend)
	return p
}

// StyleLegend sets a legend's text and room.
func StyleLegend(l *plot.Legend) {
	l.TextStyle.Font = Sans(9)
	l.Padding = vg.Points(3)
	l.ThumbnailWidth = vg.Points(26)
}

// AddGrid draws faint lines at the ticks of the values. Added first, they lie below the
// rest.
func AddGrid(p *plot.Plot) {
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = color.Gray{Y: 0xe4}
	grid.Horizontal.Width = vg.Points(0.5)
	p.Add(grid)
}

// TextWidth measures a line of text.
func TextWidth(s string, size vg.Length) vg.Length {
	style := text.Style{Font: Sans(size), Handler: plot.DefaultTextHandler}
	return style.Width(s)
}
