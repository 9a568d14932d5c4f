package figures

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Colors are the colours of lines, in their order: the palette of Okabe and Ito without its
// yellow, which is too faint for lines on white.
var Colors = []color.Color{
	Ink{color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, "c0"}, // blue
	Ink{color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, "c1"}, // vermilion
	Ink{color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, "c2"}, // bluish green
	Ink{color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, "c3"}, // reddish purple
	Ink{color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, "c4"}, // orange
	Ink{color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, "c5"}, // sky blue
	Ink{color.RGBA{R: 0x00, G: 0x00, B: 0x00, A: 0xff}, "c6"}, // black
}

// Ink is a colour that a page may have its own shade of, by name: its variable --Name.
type Ink struct {
	color.Color
	Name string
}

// Colours of lines that are there to compare others with.
var (
	Faint  = Ink{color.Gray{Y: 0xc4}, "other"}
	Strong = Ink{color.Gray{Y: 0x60}, "ref"}
)

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
	p.Legend.TextStyle.Font = Sans(9)
	return p
}

// smallAxes sets the axes of a plot that is one of many: names and ticks are smaller, and there are
// no lines.
func smallAxes(p *plot.Plot) {
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = Sans(9)
		axis.Tick.Label.Font = Sans(8)
		axis.Tick.Length = vg.Points(2.5)
		axis.Padding = 0
		axis.LineStyle.Width = 0
	}
}

// FitY makes the name of the values' axis as small as it has to be for a length.
func FitY(p *plot.Plot, length vg.Length) {
	if w := p.Y.Label.TextStyle.Width(p.Y.Label.Text); w > length {
		p.Y.Label.TextStyle.Font.Size *= length / w
	}
}

// AddGrid draws faint lines at the ticks of the values. Added first, they lie below the
// rest.
func AddGrid(p *plot.Plot) {
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = Ink{color.Gray{Y: 0xe4}, "rule"}
	grid.Horizontal.Width = vg.Points(0.5)
	p.Add(grid)
}

// fillMiddle writes a line of text at the height of its middle, as axes write their ticks.
func fillMiddle(c draw.Canvas, style text.Style, at vg.Point, line string) {
	at.Y += style.FontExtents().Descent
	c.FillText(style, at, line)
}
