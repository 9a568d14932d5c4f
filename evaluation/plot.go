package evaluation

import (
	"fmt"
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

const (
	plotDPI = 200

	// maxPanels bounds the policies of one plot, and with them the size of its
	// canvas; more could not be told apart anyway.
	maxPanels = 48
)

// seriesColors is the palette of Okabe and Ito, made to be told apart with any
// kind of colour vision, without its yellow, which is too faint for lines on white.
var seriesColors = []color.Color{
	color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, // blue
	color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, // vermilion
	color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, // bluish green
	color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, // reddish purple
	color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, // orange
	color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, // sky blue
	color.RGBA{R: 0x00, G: 0x00, B: 0x00, A: 0xff}, // black
}

// seriesGlyphs are as many as share no factor with the colours, so that no pair of
// both repeats before all are used.
var seriesGlyphs = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.PyramidGlyph{}, draw.RingGlyph{},
	draw.BoxGlyph{}, draw.TriangleGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

// seriesDashes change once the colours are used up.
var seriesDashes = [][]vg.Length{nil, {vg.Points(5), vg.Points(2)}, {vg.Points(1.5), vg.Points(1.5)}}

// sans is the typeface of all text in plots.
func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

// newPlot returns an empty plot in the house style.
func newPlot() *plot.Plot {
	p := plot.New()
	p.Title.TextStyle.Font = sans(11)
	p.Title.Padding = vg.Points(5)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = sans(10)
		axis.Label.Padding = vg.Points(3)
		axis.Tick.Label.Font = sans(9)
		axis.LineStyle.Width = vg.Points(0.6)
		axis.Tick.LineStyle.Width = vg.Points(0.6)
		axis.Tick.Length = vg.Points(4)
	}
	return p
}

// textWidthOf measures a line of text.
func textWidthOf(s string, size vg.Length) vg.Length {
	style := text.Style{Font: sans(size), Handler: plot.DefaultTextHandler}
	return style.Width(s)
}

// writePNG draws on a white canvas and writes the image.
func writePNG(w io.Writer, width, height vg.Length, drawOn func(draw.Canvas)) error {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(plotDPI))
	drawOn(draw.New(canvas))
	if _, err := (vgimg.PngCanvas{Canvas: canvas}).WriteTo(w); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}
