package figures

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bar is a percentage with the ends of its error bar and its name to the left, its value to the right.
type Bar struct {
	Name, Value, Tip string
	Color            color.Color
	At, Low, High    float64 // 0–100
}

// Bars are horizontal, the first on top, each in a row of 1.
type Bars []Bar

// NewBars is the plot of bars, without an axis of percent.
func NewBars(bars Bars) *plot.Plot {
	p := New()
	p.HideX()
	var names plot.ConstantTicks
	for i, b := range bars {
		names = append(names, plot.Tick{Value: float64(-i), Label: b.Name})
	}
	p.Y.Tick.Marker, p.Y.Tick.Length = names, 0
	p.Y.Padding = 0
	p.X.Padding = 0
	p.Add(bars)
	return p
}

// DataRange implements plot.DataRanger.
func (b Bars) DataRange() (xmin, xmax, ymin, ymax float64) { return 0, 100, 0.5 - float64(len(b)), 0.5 }

// Plot implements plot.Plotter.
func (b Bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	style := p.Y.Tick.Label
	for i, bar := range b {
		at, half := y(float64(-i)), (y(0)-y(-1))*0.36
		setTip(c, bar.Tip)
		c.SetColor(bar.Color)
		c.Fill(vg.Rectangle{Min: vg.Point{X: x(0), Y: at - half}, Max: vg.Point{X: max(x(0)+0.6, x(bar.At)), Y: at + half}}.Path())
		c.StrokeLine2(draw.LineStyle{Color: Ink{color.Black, "fg"}, Width: vg.Points(0.8)}, x(bar.Low), at, x(bar.High), at)
		fillMiddle(c, style, vg.Point{X: x(100) + b.room(p), Y: at}, bar.Value)
	}
}

// room is for the widest value.
func (b Bars) room(p *plot.Plot) (w vg.Length) {
	for _, bar := range b {
		w = max(w, p.Y.Tick.Label.Width(bar.Value)+vg.Points(8))
	}
	return w
}

// GlyphBoxes implements plot.GlyphBoxer.
func (b Bars) GlyphBoxes(p *plot.Plot) []plot.GlyphBox {
	return []plot.GlyphBox{{X: 1, Rectangle: vg.Rectangle{Max: vg.Point{X: b.room(p)}}}}
}

// Upright is a dashed line at a value of bars.
type Upright float64

// Plot implements plot.Plotter.
func (u Upright) Plot(c draw.Canvas, p *plot.Plot) {
	x, _ := p.Transforms(&c)
	c.StrokeLine2(level, x(float64(u)), c.Min.Y, x(float64(u)), c.Max.Y)
}
