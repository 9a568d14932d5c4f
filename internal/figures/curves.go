package figures

import (
	"fmt"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one diagram.
type Panel struct {
	Title string
	Log   bool // logarithmic values; those that are not positive are left out
	Lines []Line
}

// Line is a curve. Points whose value is not finite are left out.
type Line struct {
	Name   string
	Steps  []float64
	Values []float64
	Dashed bool
	Color  int // lines of the same number have the same colour
}

const (
	curvesWidth = 22 * vg.Centimeter
	panelHeight = 7 * vg.Centimeter
	curvesDPI   = 100 // they are drawn anew with every validation
)

// WriteCurves draws a run's curves as one PNG: a column of the panels that have points,
// over the same steps.
func WriteCurves(w io.Writer, panels []Panel) error {
	var plots [][]*plot.Plot
	for _, p := range panels {
		drawn, err := p.draw()
		if err != nil {
			return fmt.Errorf("curves: %s: %w", p.Title, err)
		}
		if drawn != nil {
			plots = append(plots, []*plot.Plot{drawn})
		}
	}
	if len(plots) == 0 {
		return fmt.Errorf("curves: got no points")
	}
	tiles := draw.Tiles{Rows: len(plots), Cols: 1, PadX: vg.Centimeter / 2, PadY: vg.Centimeter / 2, PadTop: 5, PadBottom: 5, PadLeft: 5, PadRight: 10}
	return Write(w, PNG, curvesWidth, panelHeight*vg.Length(len(plots)), curvesDPI, func(c draw.Canvas) {
		cells := plot.Align(plots, tiles, c)
		for i := range plots {
			plots[i][0].Draw(cells[i][0])
		}
	})
}

func (p *Panel) draw() (*plot.Plot, error) {
	out := New()
	AddGrid(out)
	out.Title.Text, out.X.Label.Text = p.Title, "step"
	out.Legend.Top = true
	points := 0
	for _, l := range p.Lines {
		xys := make(plotter.XYs, 0, len(l.Values))
		for i, v := range l.Values {
			if v-v == 0 && (!p.Log || v > 0) {
				xys = append(xys, plotter.XY{X: l.Steps[i], Y: v})
			}
		}
		if len(xys) == 0 {
			continue
		}
		points += len(xys)
		line, dots, err := plotter.NewLinePoints(thin(xys))
		if err != nil {
			return nil, err
		}
		line.Color = Colors[l.Color%len(Colors)]
		line.Width = LineWidth
		dots.Color, dots.Radius = line.Color, 1.5
		if l.Dashed {
			line.Dashes = []vg.Length{4, 3}
		}
		out.Add(line)
		if len(xys) < 50 {
			out.Add(dots)
		}
		out.Legend.Add(l.Name, line)
	}
	if points == 0 {
		return nil, nil
	}
	out.X.Max += (out.X.Max - out.X.Min) / 4 // room for the legend
	if p.Log {
		lo, hi := out.Y.Min, out.Y.Max
		if lo == hi { // gonum would widen it by a fixed amount, below 0
			lo, hi = lo/2, hi*2
		}
		out.Y.Min, out.Y.Max = lo, hi
		out.Y.Scale, out.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		// LogTicks marks powers of ten only.
		out.Y.Min, out.Y.Max = math.Pow(10, math.Floor(math.Log10(lo))), math.Pow(10, math.Ceil(math.Log10(hi)))
		if out.Y.Min == out.Y.Max {
			out.Y.Max *= 10
		}
	}
	return out, nil
}

// maxPoints is about what a panel has pixels for.
const maxPoints = 2000

// thin replaces runs of points by their means where there are more than can be seen.
func thin(xys plotter.XYs) plotter.XYs {
	if len(xys) <= maxPoints {
		return xys
	}
	out := make(plotter.XYs, 0, maxPoints)
	for i := range maxPoints {
		from, to := i*len(xys)/maxPoints, (i+1)*len(xys)/maxPoints
		var m plotter.XY
		for _, p := range xys[from:to] {
			m.X += p.X / float64(to-from)
			m.Y += p.Y / float64(to-from)
		}
		out = append(out, m)
	}
	return out
}
